"""Predictions of a service for jobs before they run, and when its predictor is fitted again."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.core.errors import EngineError
from weft.core.events.event import Refitted
from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import INTERVAL, Basis, Calibration, DueFit, Risk
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, JobTable
from weft.predict.alike.predictor import Alike
from weft.predict.hinted import Hinted
from weft.runtime.aside.messages import Report
from weft.runtime.aside.process import AsideProcess
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver


class HintedOrAlike:
    """The hint `duration_s` until a job has outlived it, else what ended jobs alike took."""

    label = "hinted, else alike"
    asks = PredictorNeeds()
    fits = None

    def __init__(self) -> None:
        self._hinted, self._alike = Hinted(), Alike()

    def remaining(self, table: JobTable, now: float) -> Floats:
        """Seconds left; infinite for a job without a hint before any has ended."""
        return self.mean(table, now)

    def mean(self, table: JobTable, now: float) -> Floats:
        hinted = self._hinted.remaining(table, now)
        trusted = _trusted(hinted)
        return hinted if trusted.all() else np.where(trusted, hinted, self._alike.mean(table, now))

    def quantiles(self, table: JobTable, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        """Rows x p, around a hint where there is one."""
        trusted = _trusted(self._hinted.remaining(table, now))[:, None]
        hinted, alike = (
            predictor.quantiles(table, now, p) for predictor in (self._hinted, self._alike)
        )
        return np.where(trusted, hinted, alike)

    def ranges(self, table: JobTable, now: float) -> Floats:
        trusted = _trusted(self._hinted.remaining(table, now))[:, None]
        hinted, alike = (predictor.ranges(table, now) for predictor in (self._hinted, self._alike))
        return np.where(trusted, hinted, alike)

    def draw(self, table: JobTable, now: float, rng: np.random.Generator) -> Floats:
        drawn = self._hinted.draw(table, now, rng)
        others = ~_trusted(self._hinted.remaining(table, now))
        if others.any():
            drawn = drawn.copy()
            drawn[others] = self._alike.draw(table.pick(others), now, rng)
        return drawn

    def index(self, table: JobTable, now: float) -> Floats:
        trusted = _trusted(self._hinted.remaining(table, now))
        return np.where(trusted, self._hinted.index(table, now), self._alike.index(table, now))

    def index_at(self, table: JobTable, now: float, attained: Floats) -> Floats:
        trusted = _trusted(self._hinted.remaining(table, now))[:, None]
        hinted, alike = (
            predictor.index_at(table, now, attained) for predictor in (self._hinted, self._alike)
        )
        return np.where(trusted, hinted, alike)

    def known_lengths(self, table: JobTable, now: float) -> Floats:
        hinted = self._hinted.remaining(table, now)
        return np.where(_trusted(hinted), table.ran(now) + hinted, np.inf)

    def risk(self, job: Job) -> Risk:
        return self._alike.risk(job)

    def basis(self, job: Job) -> Basis:
        if job.hints.get("duration_s"):
            return Basis("its hint duration_s", 1, 1.0, 1.0)
        return self._alike.basis(job)

    def scores(self) -> Calibration:
        return self._alike.scores()

    def note_submitted(self, job: Job, now: float) -> None:
        self._alike.note_submitted(job, now)

    def learn(self, ended: Ended) -> None:
        self._alike.learn(ended)

    def save(self) -> Any:
        return self._alike.save()

    def load(self, saved: Any) -> None:
        self._alike.load(saved)


def _trusted(seconds: Floats) -> Bools:
    """Rows with a hint that they have not outlived."""
    mask: Bools = np.isfinite(seconds) & (seconds > 0.0)
    return mask


log = logging.getLogger(__name__)

CPU_S, MEMORY_GB = 600.0, 4.0


class Refits(Repeated):
    """Makes models that are due, one after the other; a model that is made is a fact of the log.

    Until then decisions go on with the one before. One that cannot be made is not tried again.
    """

    every_s = 5.0
    trouble = "the predictor's model is not fitted"

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._process = AsideProcess(CPU_S, MEMORY_GB)
        self._given_up = 0

    async def poll(self) -> None:
        """Have the model made that is due."""
        fit = self._find_due()
        if fit is None or fit.ends <= self._given_up:
            return
        try:
            model = await asyncio.to_thread(self._process.run, partial(make_model, fit))
        except EngineError as error:
            self._given_up = fit.ends
            log.warning("no new model for the predictor: %s", error)
            return
        await self._driver.write_down(Refitted(fit.ends, model))

    async def close(self) -> None:
        """End, also in the middle of a fit."""
        await asyncio.to_thread(self._process.close)
        await super().close()

    def _find_due(self) -> DueFit | None:
        predictor = self._driver.scheduler.knowledge.predictor
        if predictor is None or predictor.fits is None:
            return None
        return predictor.fits.wanted()


def make_model(fit: DueFit, report: Report) -> Any:  # noqa: ARG001 - nothing to tell on the way
    """A model as the log gives it back, made in the other process."""
    return json.loads(json.dumps(fit.make()))
