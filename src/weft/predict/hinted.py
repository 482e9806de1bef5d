"""What the submitter said: the hint `duration_s` of the job."""

from __future__ import annotations

import math
from dataclasses import field

from weft.core.events.job_end import Ended
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import Asks
from weft.core.model.job import Job
from weft.core.state.table import Floats, Table
from weft.frozen import frozen
from weft.predict.estimates import Estimates


def _hint(job: Job) -> float:
    return job.hints.get("duration_s", math.inf)


@frozen
class Hinted(PointPredictor, NothingLearnt):
    """Trusts the submitter; a job without a hint may take forever."""

    _estimates: Estimates = field(
        default_factory=lambda: Estimates(_hint), init=False, repr=False, compare=False
    )

    label = "hinted"
    asks = Asks(hint="duration_s")

    def remaining(self, table: Table, now: float) -> Floats:
        """Hinted length, less time executed."""
        return self._estimates.remaining(table, now)

    def learn(self, ended: Ended) -> None:
        """Nothing to learn."""
