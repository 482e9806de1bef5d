"""Looks at the live service for what needs a person, every few seconds at most."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from weft.app.insight.counted_start import in_words
from weft.app.serve.live import Live
from weft.core.knowledge.programs import Programs
from weft.core.model.job import JobId
from weft.core.plan.reasons import device_word
from weft.core.protocols import Engine
from weft.runtime.records.idle_jobs import describe_idle, find_memory_wait
from weft.runtime.records.job_records import JobRecord
from weft.service.jobs.job_view import node_answers
from weft.service.jobs.memory_words import describe_wait
from weft.service.needs import Sight, find_needs
from weft.service.responses.answers import Need
from weft.service.verdicts import Verdicts
from weft.service.watchdog import Watchdog
from weft.stack.windows import DRAIN

FRESH_S = 5.0  # however many ask
LATELY_S = 86_400.0  # since a job failed
MOST_FAILED = 500  # jobs that failed lately, the last of them
LONG_S = 60.0  # of waiting for memory, and of a broken promise


class NeedsReader:
    """A reader of what needs a person, of all tenants; it looks again after a few seconds."""

    def __init__(self, live: Live, verdicts: Verdicts, watchdog: Watchdog) -> None:
        self._live, self._verdicts, self._watchdog = live, verdicts, watchdog
        self._lock = asyncio.Lock()
        self._needs: Sequence[Need] = ()
        self._stale_at = 0.0

    async def read(self) -> Sequence[Need]:
        """Everything that needs a person, looked for again if that was a while ago."""
        seconds = asyncio.get_running_loop().time  # of the service, as virtual as its driver's
        async with self._lock:
            if seconds() >= self._stale_at:
                sight = await self._collect()
                self._needs = await asyncio.to_thread(find_needs, sight)  # 45 ms of 20,000 jobs
                self._stale_at = seconds() + FRESH_S
        return self._needs

    async def _collect(self) -> Sight:
        live, driver = self._live, self._live.driver
        jobs, idle = driver.ledger.jobs, driver.ledger.idle.idle
        since = driver.now - LATELY_S
        failed, succeeded = [
            await asyncio.to_thread(jobs.ended_since(since, outcome, MOST_FAILED))
            for outcome in ("failed", "succeeded")
        ]
        active = [jobs.live[job] for job in jobs.active]
        running = [record for record in active if record.running is not None]
        device = device_word(node.kind for node, _ in driver.nodes())
        windows = [name for name in live.quotas.windows if name.startswith(DRAIN)]
        drained = {name.removeprefix(DRAIN).partition(":")[0] for name in windows}
        return Sight(
            driver.now,
            active,
            failed,
            idle={job: describe_idle(use, device) for job, use in idle.items()},
            memory=memory_texts(driver.engine, running, driver.now),
            slow=describe_slowed(driver.scheduler.knowledge.programs, running),
            limits=live.quotas.limits,
            nodes=node_answers(live),
            drained=drained | {node.id for node, word in driver.nodes() if word != "up"},
            asleep=set() if live.sleep_nodes is None else live.sleep_nodes.away,
            marks=driver.ledger.history.out,
            verdict=self._verdicts.last or {},
            checks=self._watchdog.checks(),
            succeeded=succeeded,
        )


def memory_texts(engine: Engine, running: Sequence[JobRecord], now: float) -> Mapping[JobId, str]:
    """Words for jobs that have waited long for memory of their GPU."""
    waits = ((record.job.id, find_memory_wait(engine, record)) for record in running)
    return {
        job: describe_wait(wait, job, now)
        for job, wait in waits
        if wait is not None and now - wait.since >= LONG_S
    }


def describe_slowed(programs: Programs | None, running: Sequence[JobRecord]) -> Mapping[JobId, str]:
    """Words for jobs that others beside them slow down by more than was promised."""
    texts = dict[JobId, str]()
    if programs is None:
        return texts
    for record in running:
        promise, broken_s = programs.promise(record.job), programs.broken_s(record.job)
        if promise is not None and broken_s >= LONG_S:
            texts[record.job.id] = (
                f"was more than {promise:g} times as slow as alone, which it was promised not "
                f"to be, for {in_words(broken_s)}"
            )
    return texts
