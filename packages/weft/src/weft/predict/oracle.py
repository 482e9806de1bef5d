"""The simulator's own truth. Only a simulation can offer it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from weft.core.events.job_end import Ended
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.frozen import frozen

Remaining = Callable[[Floats, float], Floats]


@frozen
class Oracle(PointPredictor, NothingLearnt):
    """Knows every job's remaining seconds exactly."""

    truth: Remaining = field(metadata={"settable": False})

    label = "oracle"
    asks = PredictorNeeds(facts=("truth",))

    def remaining(self, table: JobTable, now: float) -> Floats:
        return self.truth(table.seq, now)

    def learn(self, ended: Ended) -> None:
        """Nothing to learn."""
