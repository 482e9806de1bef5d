"""Predictors that estimate the length of one job at a time, from ends alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.codec.columns import pack_floats, unpack_floats
from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import DueFit, Fits, PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Job, JobId
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable


class EstimateColumn:
    """A column of estimates by submission number, filled as jobs appear."""

    def __init__(self, estimate: Callable[[Job], float]) -> None:
        self._estimate = estimate
        self._known: Floats = np.full(64, np.nan)

    def save(self) -> Any:
        return pack_floats(self._known)

    def load(self, saved: Any) -> None:
        self._known = unpack_floats(saved)

    def remaining(self, table: JobTable, now: float, executed: Floats | None = None) -> Floats:
        """Estimated length less `executed`, or else less the time it ran; never below zero."""
        seq = table.seq.astype(np.intp)
        if len(seq) and seq[-1] >= len(self._known):
            grown = np.full(max(2 * len(self._known), int(seq[-1]) + 1), np.nan)
            grown[: len(self._known)] = self._known
            self._known = grown
        total = self._known[seq]
        unknown = np.flatnonzero(np.isnan(total))
        if len(unknown):
            made = np.array([self._estimate(table.jobs[row]) for row in unknown.tolist()])
            total[unknown] = made  # what is unknown now may be known later
            self._known[seq[unknown]] = np.where(np.isfinite(made), made, np.nan)
        return np.maximum(total - (table.ran(now) if executed is None else executed), 0.0)


class ByJob(PointPredictor, ABC):
    """Estimated length less time executed; a job that outlives the estimate needs as long again.

    An estimate is made again after every end, unless `keeps_estimates` says that the one at a job's
    submission stays. What is asked, and how often, changes nothing.
    """

    asks = PredictorNeeds()

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
        """True if the first estimate of a job stays."""
        return False

    def remaining(self, table: JobTable, now: float) -> Floats:
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
        return self

    @abstractmethod
    def _fit(self) -> DueFit:
        """The model that was due last."""

    @abstractmethod
    def _use(self, model: Any) -> None:
        """Go on with a model, of plain values."""

    def _note_due(self) -> None:
        self._due = True
        if not self.aside:
            self.adopt(self._fit().make())

    def wanted(self) -> DueFit | None:
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
