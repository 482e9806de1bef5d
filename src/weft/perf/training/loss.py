"""How many epochs a job still needs, from its loss so far (Optimus, EuroSys 2018).

The law is that of stochastic gradient descent, loss(k) = 1 / (b0 k + b1) + b2 with nothing
negative. For a given b2 it is linear in the others; b2 is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.core.state.table import Floats
from weft.perf.training.servers import nonnegative

LEAST_POINTS = 3
SEGMENTS = 3
WINDOW = 3
CANDIDATES = 33
REFINEMENTS = 8
UNKNOWN = 20.0  # epochs left of a job whose loss follows no law


class LossCurve(NamedTuple):
    """A fitted law."""

    b0: float
    b1: float
    b2: float

    def at(self, epoch: float) -> float:
        """The loss after so many epochs."""
        return 1.0 / (self.b0 * epoch + self.b1) + self.b2

    def converged(self, drop: float = 0.05, over: int = 10, most: int = 100) -> int:
        """The first epoch whose last `over` epochs lowered the loss by less than `drop`."""
        for epoch in range(over, most):
            if self.at(epoch - over) - self.at(epoch) < drop:
                return epoch
        return most


def epochs_left(losses: Sequence[float], drop: float = 0.05, over: int = 10) -> float:
    """Epochs until the loss hardly falls any more; `losses` has one value an epoch done."""
    curve = fit_loss(normalise(losses))
    if curve is None:
        return UNKNOWN
    return float(max(curve.converged(drop, over) - len(losses), 0))


def normalise(losses: Sequence[float]) -> Floats:
    """Losses as parts of the largest, outliers replaced by the mean of their neighbours.

    An outlier is above the median of the values before it or below that of the values after it,
    which no falling curve ever is.
    """
    value = np.asarray(losses, dtype=float)
    if not len(value) or value.max() <= 0.0:
        return value
    smooth = value.copy()
    for i in range(1, len(value) - 1):
        before, after = value[max(i - WINDOW, 0) : i], value[i + 1 : i + 1 + WINDOW]
        if value[i] > np.median(before) or value[i] < np.median(after):
            smooth[i] = (value[i - 1] + value[i + 1]) / 2.0
    return np.asarray(smooth / smooth.max())


def fit_loss(losses: Sequence[float] | Floats) -> LossCurve | None:
    """The law that explains losses of epochs 0, 1, ... best; None where none does.

    Later epochs weigh more: four times as much in each third of the points.
    """
    value = np.asarray(losses, dtype=float)
    n = len(value)
    if n < LEAST_POINTS or not np.isfinite(value).all() or value.min() <= 0.0:
        return None
    weight: Floats = np.power(4.0, np.arange(n) * SEGMENTS // n)
    low, high = 0.0, float(value.min()) * (1.0 - 1e-9)
    best: tuple[float, LossCurve | None] = (np.inf, None)
    for _ in range(REFINEMENTS):
        grid = np.linspace(low, high, CANDIDATES)
        tried = [_with_floor(value, weight, float(b2)) for b2 in grid]
        at = int(np.argmin([error for error, _ in tried]))
        best = min(best, tried[at], key=lambda fitted: fitted[0])
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, CANDIDATES - 1)])
    return best[1]


def _with_floor(value: Floats, weight: Floats, b2: float) -> tuple[float, LossCurve | None]:
    """The best b0 and b1 for one b2, and the weighted squared error."""
    above = value - b2
    # An error of 1 / above counts as much as the error of the loss that it leads to.
    counts = weight * above**2
    epochs = np.arange(len(value), dtype=float)
    columns = np.stack([epochs, np.ones_like(epochs)], axis=1) * counts[:, None]
    b0, b1 = nonnegative(columns, counts / above)
    if b1 <= 0.0:
        return np.inf, None
    off = weight * (1.0 / (b0 * epochs + b1) - above)
    return float(off @ off), LossCurve(float(b0), float(b1), b2)
