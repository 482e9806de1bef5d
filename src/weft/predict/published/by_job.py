"""Predictors that estimate the length of one job at a time, from ends alone."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import Asks
from weft.core.model.job import Job, JobId
from weft.core.state.table import Floats, Table


class ByJob(PointPredictor, ABC):
    """Estimated length less time executed; who outlives the estimate needs as long again.

    An estimate is made again after every end, unless `keeps_estimates` says that the first stays.
    """

    asks = Asks()

    def __init__(self) -> None:
        self._made: dict[JobId, float] = {}

    @abstractmethod
    def estimate(self, job: Job) -> float:
        """Seconds in all; infinite where nothing is known."""

    @abstractmethod
    def note_end(self, ended: Ended) -> None:
        """Learn from an end that was the job's own."""

    @property
    def keeps_estimates(self) -> bool:
        """Whether the first estimate of a job stays."""
        return False

    def remaining(self, table: Table, now: float) -> Floats:
        """Seconds left of each row."""
        ran = table.ran(now)
        total = np.array([self._estimate(job) for job in table.jobs], dtype=float)
        return np.where(total > ran, total - ran, np.maximum(ran, 1.0))

    def _estimate(self, job: Job) -> float:
        made = self._made.get(job.id)
        if made is None:
            made = self.estimate(job)
            if np.isfinite(made):
                self._made[job.id] = made
        return made

    def learn(self, ended: Ended) -> None:
        """A job ended."""
        if self.keeps_estimates:
            self._made.pop(ended.job.id, None)
        else:
            self._made.clear()
        if not ended.censored and (ended.ran > 0.0 or ended.failed):
            self.note_end(ended)
