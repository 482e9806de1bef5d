"""The submitter's estimate: the hint `duration_s` of the job."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Job
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import JobTable
from weft.frozen import frozen
from weft.predict.by_job import EstimateColumn


def _hint(job: Job) -> float:
    return job.hints.get("duration_s", math.inf)


@frozen
class Hinted(PointPredictor, NothingLearnt):
    """Trusts the submitter; a job without a hint may take forever."""

    _estimates: EstimateColumn = field(
        default_factory=lambda: EstimateColumn(_hint), init=False, repr=False, compare=False
    )

    label = "hinted"
    asks = PredictorNeeds(hint="duration_s")

    def remaining(self, table: JobTable, now: float) -> Floats:
        """Hinted length, less what was executed of it."""
        return self._estimates.remaining(table, now, _executed(table, now))

    def learn(self, ended: Ended) -> None:
        """Nothing to learn."""


def _executed(table: JobTable, now: float) -> Floats:
    """Seconds of the hinted length that are done, which is for the size that the job asked for.

    A second on fewer GPUs than that counts as the part of them that it had; a second on more
    counts as a second, since nothing says that more GPUs made the job faster.
    """
    ran = table.ran(now)
    resized = table.column(TableColumns.MIN) != table.column(TableColumns.MAX)
    if not resized.any():
        return ran
    asked = np.maximum(table.column(TableColumns.NEED), 1e-9)
    return np.where(resized, np.minimum(ran, table.service(now) / asked), ran)
