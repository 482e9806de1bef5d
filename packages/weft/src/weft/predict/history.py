"""Lengths of similar jobs before: two thirds of the tasks in production recur (NSDI 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.predict.by_job import EstimateColumn

Key = tuple[str, ...]


def _keys(job: Job) -> tuple[Key, ...]:
    """From the most telling group to the whole cluster."""
    gpus = f"{job.demand.gpus * job.demand.share:g}"
    return (
        (job.tenant, job.user, job.model, gpus),
        (job.tenant, job.user, gpus),
        (job.tenant, gpus),
        (gpus,),
        (),
    )


@dataclass(slots=True)
class HistoryPredictor(PointPredictor):
    """The geometric mean of finished jobs alike: same user, model and size, else wider.

    Geometric, because lengths span six orders of magnitude. Before any job has finished
    nothing is known.
    """

    min_samples: int = 3
    _sums: dict[Key, tuple[int, float]] = field(default_factory=dict, init=False, repr=False)
    _estimates: EstimateColumn | None = field(default=None, init=False, repr=False)

    asks = PredictorNeeds()

    @property
    def label(self) -> str:
        return "history"

    def remaining(self, table: JobTable, now: float) -> Floats:
        """Typical length of jobs alike, less time executed."""
        if self._estimates is None:
            self._estimates = EstimateColumn(self._estimate)
        return self._estimates.remaining(table, now)

    def learn(self, ended: Ended) -> None:
        """Remember what a job took that finished; failed and cancelled ones are skipped."""
        if not ended.finished:
            return
        ran = ended.ran
        for key in _keys(ended.job):
            count, total = self._sums.get(key, (0, 0.0))
            self._sums[key] = (count + 1, total + math.log(max(ran, 1.0)))

    def save(self) -> Any:
        """The sums of each group, and the estimates that were made by them."""
        sums = [[list(key), count, total] for key, (count, total) in self._sums.items()]
        return {"sums": sums, "estimates": self._estimates and self._estimates.save()}

    def load(self, saved: Any) -> None:
        self._sums = {tuple(key): (count, total) for key, count, total in saved["sums"]}
        if saved["estimates"] is not None:
            self._estimates = EstimateColumn(self._estimate)
            self._estimates.load(saved["estimates"])

    def _estimate(self, job: Job) -> float:
        for key in _keys(job):
            count, total = self._sums.get(key, (0, 0.0))
            if count >= self.min_samples or (not key and count):
                return math.exp(total / count)
        return math.inf
