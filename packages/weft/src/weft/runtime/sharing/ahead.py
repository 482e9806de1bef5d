"""Starts the next in line before its turn, and freezes it when it has begun to train.

`weft.core.asleep.ahead` says which job that is; here is what takes time: looking for first steps.
"""

from __future__ import annotations

import asyncio
import logging

from weft.core.asleep.ahead import Allows, find_next, is_ahead
from weft.core.asleep.rules import rules_of
from weft.core.asleep.sleeping import Sleeping
from weft.core.errors import WeftError
from weft.core.events.event import SleepFailed, Slept
from weft.core.knowledge.measured import Sees
from weft.core.stops import PLAN, Rung
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver

log = logging.getLogger(__name__)

LONGEST_S = 120.0  # without a step: it is frozen wherever it is


class AheadStarts(Repeated):
    """Starts ahead on a driver's engine, as far as rules `allow`.

    Jobs frozen at the end stay so.
    """

    every_s = 0.25
    trouble = "no job is started ahead now"

    def __init__(self, driver: Driver, allows: Allows) -> None:
        self._driver, self._allows = driver, allows
        self._seen = -1

    def open(self) -> None:
        """Begin, where the engine sees steps and can freeze."""
        engine = self._driver.engine
        if engine.real and Sees.STEPS in engine.sees and Rung.FREEZE in engine.stops:
            super().open()

    async def poll(self) -> None:
        """Freeze jobs that have begun, and start the next."""
        driver, state = self._driver, self._driver.scheduler.state
        for sleeper in [*state.asleep.sleepers.values()]:
            if not sleeper.there and is_ahead(state, sleeper) and await self._is_ready(sleeper):
                await self._freeze(sleeper)
        rules = rules_of(driver.engine.stops)
        if rules is None or driver.seq == self._seen:
            return  # nothing has changed since no job could be started
        self._seen = driver.seq
        start = find_next(state, driver.scheduler.knowledge, rules, driver.now, self._allows)
        if start is not None:
            log.info("job=%s attempt=%d is started ahead", start.job, start.attempt)
            await driver.write_down(start)

    async def _is_ready(self, sleeper: Sleeping) -> bool:
        """True if it steps, is wanted now, or takes too long."""
        state, driver = self._driver.scheduler.state, self._driver
        row = state.table.find(sleeper.job)
        if row is None or state.table.allocations[row] is not None:
            return True
        if driver.now - sleeper.since > LONGEST_S:
            return True
        measured = await asyncio.to_thread(driver.engine.measured, sleeper.job, sleeper.attempt)
        return bool(measured.steps)

    async def _freeze(self, sleeper: Sleeping) -> None:
        try:
            await self._driver.engine.freeze(sleeper.job, sleeper.attempt, by=PLAN)
        except WeftError as error:
            await self._driver.write_down(SleepFailed(sleeper.job, sleeper.attempt, str(error)))
        else:
            await self._driver.write_down(Slept(sleeper.job, sleeper.attempt, Rung.FREEZE))
