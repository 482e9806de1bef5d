"""Predictors that estimate the length of one job at a time, from ends alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.fits import Fit, Fits
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import Asks
from weft.core.model.job import Job, JobId
from weft.core.state.cells import Floats
from weft.core.state.table import Table


class ByJob(PointPredictor, ABC):
    """Estimated length less time executed; a job that outlives the estimate needs as long again.

    An estimate is made again after every end, unless `keeps_estimates` says that the one at a job's
    submission stays. What is asked, and how often, changes nothing.
    """

    asks = Asks()

    def __init__(self) -> None:
        self._kept: dict[JobId, float] = {}
        self._made: dict[JobId, float] = {}  # since the last end

    @abstractmethod
    def estimate(self, job: Job) -> float:
        """Seconds in total; infinite where nothing is known."""

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
        made = self._kept.get(job.id)
        if made is None:
            made = self._made.get(job.id)
        if made is None:
            made = self._made[job.id] = self.estimate(job)
        return made

    def note_submitted(self, job: Job, now: float) -> None:  # noqa: ARG002 - of the protocol
        """Keep what is estimated now, where that stays."""
        if self.keeps_estimates and np.isfinite(made := self.estimate(job)):
            self._kept[job.id] = made

    def learn(self, ended: Ended) -> None:
        """A job ended."""
        self._kept.pop(ended.job.id, None)
        self._made.clear()
        if not ended.censored and (ended.ran > 0.0 or ended.failed):
            self.note_end(ended)


class Fitted(ByJob, ABC):
    """Estimates by a model that is fitted again from time to time."""

    def __init__(self) -> None:
        super().__init__()
        self.aside = False
        self._due = False
        self._model_values: Any = None

    @property
    def fits(self) -> Fits | None:
        """Itself."""
        return self

    @abstractmethod
    def _fit(self) -> Fit:
        """The model that was due last."""

    @abstractmethod
    def _use(self, model: Any) -> None:
        """Go on with a model, of plain values."""

    def _note_due(self) -> None:
        self._due = True
        if not self.aside:
            self.adopt(self._fit().make())

    def wanted(self) -> Fit | None:
        """The model that is due."""
        return self._fit() if self._due else None

    def adopt(self, model: Any) -> None:
        """Go on with it; one that became due meanwhile still is."""
        self._use(model)
        self._made.clear()
        self._model_values, self._due = model, model["ends"] < self._fit().ends

    def save_fit(self) -> Any:
        """The model, whether another is due, and estimates that stay."""
        return {"model": self._model_values, "due": self._due, "kept": self._kept}

    def load_fit(self, saved: Any) -> None:
        """Take up what `save_fit` gave; None of older versions: it is due now."""
        self._made.clear()
        if saved is None:
            if self._fit().ends:
                self._note_due()
            return
        self._kept = {JobId(job): float(seconds) for job, seconds in saved["kept"].items()}
        if saved["model"] is not None:
            self.adopt(saved["model"])
        self._due = bool(saved["due"])
        if self._due:
            self._note_due()
