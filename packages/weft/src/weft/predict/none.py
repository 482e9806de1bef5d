"""No knowledge of remaining times."""

from __future__ import annotations

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.frozen import frozen


@frozen
class NoPredictor(PointPredictor, NothingLearnt):
    """Knows nothing: every job may take forever."""

    label = "none"
    asks = PredictorNeeds()

    def remaining(self, table: JobTable, now: float) -> Floats:  # noqa: ARG002
        return np.full(len(table), np.inf)

    def learn(self, ended: Ended) -> None:
        """Nothing to learn."""
