"""Fits the predictor's model beside the service, in a process that nothing waits for."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Any

from weft.core.errors import EngineError
from weft.core.events.event import Refitted
from weft.core.knowledge.fits import Fit
from weft.runtime.aside.messages import Report
from weft.runtime.aside.process import AsideProcess
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver

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

    async def look(self) -> None:
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

    def _find_due(self) -> Fit | None:
        predictor = self._driver.scheduler.knowledge.predictor
        if predictor is None or predictor.fits is None:
            return None
        return predictor.fits.wanted()


def make_model(fit: Fit, report: Report) -> Any:  # noqa: ARG001 - nothing to tell on the way
    """What the process does: a model as the log gives it back."""
    return json.loads(json.dumps(fit.make()))
