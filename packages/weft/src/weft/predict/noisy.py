"""The truth, blurred: what a profiler or a user who knows the job might say."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.events.job_end import Ended
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.frozen import frozen
from weft.predict.oracle import Remaining


@frozen
class Noisy(PointPredictor, NothingLearnt):
    """Each job's total length is off by its own factor, log-normal with this `sigma`.

    A job that outlives its estimate is thought to be about to end.
    """

    truth: Remaining = field(metadata={"settable": False})
    lengths: Remaining = field(metadata={"settable": False})
    seed: int = field(default=0, metadata={"settable": False})
    sigma: float = 0.5

    asks = PredictorNeeds(facts=("truth", "lengths", "seed"))

    def __post_init__(self) -> None:
        if not self.sigma >= 0:
            raise InvalidConfig(f"noisy: sigma={self.sigma:g} must be 0 or more")

    @property
    def label(self) -> str:
        return f"noisy(sigma={self.sigma:g})"

    def remaining(self, table: JobTable, now: float) -> Floats:
        """Blurred total length, less what is done."""
        total = self.lengths(table.seq, now)
        done = total - self.truth(table.seq, now)
        return np.maximum(total * self._factors(table.seq) - done, 0.0)

    def learn(self, ended: Ended) -> None:
        """Nothing to learn."""

    def _factors(self, seq: Floats) -> Floats:
        # A counter-based hash: a job's factor depends on the seed and its number alone.
        a, b = (_uniform(seq, self.seed, salt) for salt in (1, 2))
        normal = np.sqrt(-2.0 * np.log(a)) * np.cos(2.0 * np.pi * b)
        return np.exp(self.sigma * normal)


def _uniform(seq: Floats, seed: int, salt: int) -> Floats:
    """Uniform numbers in (0, 1), splitmix64 of (seed, salt, number)."""
    with np.errstate(over="ignore"):
        x = seq.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64((seed * 2654435761 + salt * 0x9E3779B9) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        x ^= x >> np.uint64(31)
    return (x.astype(np.float64) + 0.5) / 2.0**64
