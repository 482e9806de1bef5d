"""The true fall of a job's loss. Like all truth, for the simulator alone.

The families are published forms: `sgd` is 1 / (b0 k + b1) + b2 (Optimus, EuroSys 2018),
`sublinear` 1 / (a k^2 + b k + c) + d and `linear` mu^(k - b) + c (SLAQ, SoCC 2017), `power`
a (k + 1)^-b + c (Hestness et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.state.cells import Floats
from weft.frozen import frozen

Family = Callable[[Floats, tuple[float, ...]], Floats]
FAMILIES: dict[str, tuple[int, Family]] = {
    "sgd": (3, lambda k, c: 1.0 / (c[0] * k + c[1]) + c[2]),
    "sublinear": (4, lambda k, c: 1.0 / (c[0] * k**2 + c[1] * k + c[2]) + c[3]),
    "linear": (3, lambda k, c: c[0] ** (k - c[1]) + c[2]),
    "power": (3, lambda k, c: c[0] * (k + 1.0) ** -c[1] + c[2]),
}
BLOCK = 256
HALVINGS = 60


@frozen
class Curve:
    """Loss by iterations, over the `iterations` of the whole job.

    What a job measures scatters around it by a normal error, `noise` times what the loss still
    has to fall; same `seed`, same scatter.
    """

    family: str
    coefficients: tuple[float, ...]
    iterations: float
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        known = FAMILIES.get(self.family)
        if known is None or known[0] != len(self.coefficients) or self.iterations <= 0.0:
            raise InvalidConfig(
                f"no loss curve {self.family!r} of {len(self.coefficients)} coefficients over "
                f"{self.iterations} iterations",
                hint="there are "
                + ", ".join(f"{name} of {count}" for name, (count, _) in FAMILIES.items()),
            )

    def at(self, k: Floats | float) -> Floats:
        """The loss after `k` iterations, without scatter."""
        return np.asarray(FAMILIES[self.family][1](np.asarray(k, dtype=float), self.coefficients))

    def measured(self, first: int, last: int) -> Floats:
        k = np.arange(first, last + 1)
        loss = self.at(k.astype(float))
        if not self.noise:
            return loss
        blocks = range(first // BLOCK, last // BLOCK + 1)
        drawn = [np.random.default_rng([self.seed, b]).standard_normal(BLOCK) for b in blocks]
        error = np.concatenate(drawn)[k - blocks[0] * BLOCK]
        return np.asarray(loss + self.noise * (loss - self.at(self.iterations)) * error)

    def reached(self, part: float) -> float:
        first, last = float(self.at(0.0)), float(self.at(self.iterations))
        goal = first - part * (first - last)
        low, high = 0.0, self.iterations
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if float(self.at(middle)) <= goal else (middle, high)
        return high
