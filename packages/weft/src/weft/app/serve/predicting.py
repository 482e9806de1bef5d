"""What a service knows of jobs before they tell: their hints, else what jobs alike took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import INTERVAL, Basis, Calibration, Risk
from weft.core.knowledge.predictor import Asks
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Table
from weft.predict.alike.predictor import Alike
from weft.predict.hinted import Hinted


class HintedOrAlike:
    """The hint `duration_s` until a job has outlived it, else what ended jobs alike took."""

    label = "hinted, else alike"
    asks = Asks()
    fits = None

    def __init__(self) -> None:
        self._hinted, self._alike = Hinted(), Alike()

    def remaining(self, table: Table, now: float) -> Floats:
        """Seconds left; infinite for a job without a hint before any has ended."""
        return self.mean(table, now)

    def mean(self, table: Table, now: float) -> Floats:
        """The same."""
        hinted = self._hinted.remaining(table, now)
        trusted = _trusted(hinted)
        return hinted if trusted.all() else np.where(trusted, hinted, self._alike.mean(table, now))

    def quantiles(self, table: Table, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        """Rows x p, around a hint where there is one."""
        trusted = _trusted(self._hinted.remaining(table, now))[:, None]
        hinted, alike = (
            predictor.quantiles(table, now, p) for predictor in (self._hinted, self._alike)
        )
        return np.where(trusted, hinted, alike)

    def ranges(self, table: Table, now: float) -> Floats:
        """Rows x 3: from, about, to."""
        trusted = _trusted(self._hinted.remaining(table, now))[:, None]
        hinted, alike = (predictor.ranges(table, now) for predictor in (self._hinted, self._alike))
        return np.where(trusted, hinted, alike)

    def draw(self, table: Table, now: float, rng: np.random.Generator) -> Floats:
        """One possible future of each row."""
        drawn = self._hinted.draw(table, now, rng)
        others = ~_trusted(self._hinted.remaining(table, now))
        if others.any():
            drawn = drawn.copy()
            drawn[others] = self._alike.draw(table.pick(others), now, rng)
        return drawn

    def index(self, table: Table, now: float) -> Floats:
        """The highest chance to end per second of execution."""
        trusted = _trusted(self._hinted.remaining(table, now))
        return np.where(trusted, self._hinted.index(table, now), self._alike.index(table, now))

    def index_at(self, table: Table, now: float, attained: Floats) -> Floats:
        """The same once each row has executed for so long."""
        trusted = _trusted(self._hinted.remaining(table, now))[:, None]
        hinted, alike = (
            predictor.index_at(table, now, attained) for predictor in (self._hinted, self._alike)
        )
        return np.where(trusted, hinted, alike)

    def known_lengths(self, table: Table, now: float) -> Floats:
        """By its hint."""
        hinted = self._hinted.remaining(table, now)
        return np.where(_trusted(hinted), table.ran(now) + hinted, np.inf)

    def risk(self, job: Job) -> Risk:
        """The chance to fail, by the last ends alike."""
        return self._alike.risk(job)

    def basis(self, job: Job) -> Basis:
        """Its hint, or the jobs that it is like."""
        if job.hints.get("duration_s"):
            return Basis("its hint duration_s", 1, 1.0, 1.0)
        return self._alike.basis(job)

    def scores(self) -> Calibration:
        """How well predictions without hints did."""
        return self._alike.scores()

    def note_submitted(self, job: Job, now: float) -> None:
        """Predict now what is scored at its end."""
        self._alike.note_submitted(job, now)

    def learn(self, ended: Ended) -> None:
        """A job ended."""
        self._alike.learn(ended)

    def save(self) -> Any:
        """What ended jobs took."""
        return self._alike.save()

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        self._alike.load(saved)


def _trusted(seconds: Floats) -> Bools:
    """Rows with a hint that they have not outlived."""
    mask: Bools = np.isfinite(seconds) & (seconds > 0.0)
    return mask
