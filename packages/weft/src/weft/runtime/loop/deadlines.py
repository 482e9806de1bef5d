"""Deadlines that pass before their jobs have ended, told beside a driver that goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from weft.core.errors import WeftError
from weft.core.events.event import DeadlineMissed, Submitted
from weft.core.model.job import Job
from weft.runtime.loop.driver import Driver

log = logging.getLogger(__name__)


class Deadlines:
    """Waits for the deadline of every job that has one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        for job in self._driver.scheduler.state.table.jobs:
            self._expect(job)
        self._keep(self._follow(self._driver.seq))

    async def close(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, seq: int) -> None:
        async for rows in self._driver.subscribe(seq):
            for _, _, event in rows:
                if isinstance(event, Submitted):
                    self._expect(event.job)

    def _expect(self, job: Job) -> None:
        if job.deadline is not None:
            self._keep(self._wait(job, job.deadline))

    async def _wait(self, job: Job, deadline: float) -> None:
        driver = self._driver
        while (left_s := deadline - driver.now) > 0.0:
            await asyncio.sleep(left_s / driver.engine.speed)
        record = driver.ledger.jobs.get(job.id)
        if record is None or record.outcome or record.missed:
            return
        log.warning("job=%s missed its deadline", job.id)
        try:
            await driver.write_down(DeadlineMissed(job.id))
        except WeftError as error:
            log.warning("job=%s that it missed its deadline is not written: %s", job.id, error)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
