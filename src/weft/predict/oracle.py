"""The simulator's own truth. Only a simulation can offer it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from weft.core.job_end import Ended
from weft.core.learning import NothingLearnt
from weft.core.prediction import PointPredictor
from weft.core.predictor import Asks
from weft.core.table import Floats, Table

Remaining = Callable[[Floats, float], Floats]


@dataclass(frozen=True, slots=True)
class Oracle(PointPredictor, NothingLearnt):
    """Knows every job's remaining seconds exactly."""

    truth: Remaining = field(metadata={"settable": False})

    label = "oracle"
    asks = Asks(facts=("truth",))

    def remaining(self, table: Table, now: float) -> Floats:
        """The truth."""
        return self.truth(table.seq, now)

    def learn(self, ended: Ended) -> None:
        """Nothing to learn."""
