"""Polls running jobs, reports idle ones, and may stop them."""

from __future__ import annotations

import logging

from weft.core.events.event import Cancelled, Noticed
from weft.core.model.job import JobId
from weft.core.plan.reasons import device_word
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver
from weft.runtime.records.idle_jobs import IdleJobs, describe_idle

log = logging.getLogger(__name__)

LEVEL = "idle"


class IdleWatch(Repeated):
    """Of a driver's running jobs; `stop_s` None never stops any."""

    every_s = 30.0
    trouble = "reasons of idle jobs are not written"
    waits_first = True

    def __init__(self, driver: Driver, stop_s: float | None = None) -> None:
        self._driver, self._stop_s = driver, stop_s

    @property
    def jobs(self) -> IdleJobs:
        """What was observed about them."""
        return self._driver.ledger.idle

    async def look(self) -> None:
        """Report jobs that are found idle; stop those that were so for too long."""
        driver = self._driver
        live = driver.ledger.jobs.live
        running = [
            record for record in live.values() if record.running is not None and not record.outcome
        ]
        for job in self.jobs.look(running, driver.now):
            attempt = self.jobs.uses[job].attempt
            await driver.write_down(Noticed(job, attempt, LEVEL, self._describe(job)))
        for job in self._find_late():
            text = f"stopped: it {self._describe(job)}"
            log.warning("job=%s %s", job, text)
            await driver.write_down(Cancelled(job, text))

    def _describe(self, job: JobId) -> str:
        kinds = (node.kind for node, _ in self._driver.nodes())
        return describe_idle(self.jobs.uses[job], device_word(kinds))

    def _find_late(self) -> list[JobId]:
        if self._stop_s is None:
            return []
        return [job for job, use in self.jobs.idle.items() if use.idle_s >= self._stop_s]
