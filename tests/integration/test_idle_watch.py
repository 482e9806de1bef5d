"""A service says of idle jobs that they are, everywhere, and stops them only if it was told to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weft.app.serve.idle_jobs import IdleWatch
from weft.app.serve.live import Live, Settings
from weft.core.events.event import Noticed, Reported
from weft.core.events.report import Report
from weft.core.knowledge.measured import MeasuredAttempt, MemoryWait, Sees
from weft.core.model.job import Demand, Job, JobId
from weft.core.protocols import Engine
from weft.runtime.records.idle_jobs import IDLE_S
from weft.service.jobs.job_view import JobView
from weft.service.notify.webhooks import changes_of

A = JobId("a")


class WaitsForMemory:
    """Stands in for an engine whose GPU has no memory left for any job."""

    sees = Sees.WAITS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def measured(self, *_: object) -> MeasuredAttempt:
        return MeasuredAttempt(waits=MemoryWait(70.0, 0.0, {}))


def test_a_job_that_waits_for_memory_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def life() -> None:
        live = Live(Settings(engine="simulated:cluster=1x4:a100,speed=1000", policy="fifo"))
        await live.open()
        try:
            driver = live.driver
            await driver.submit(Job(A, demand=Demand(4), hints={"duration_s": 1e7}))
            while driver.job(A).state != "running":
                await asyncio.sleep(0.01)
            await driver.write_down(Reported(A, 1, Report(sm=0.0)))
            watch = IdleWatch(driver)
            with monkeypatch.context() as patch:
                patch.setattr(driver, "engine", WaitsForMemory(driver.engine))
                await watch.poll()
                begun = driver.now
                while driver.now < begun + 2.0 * IDLE_S:
                    await asyncio.sleep(0.05)
                    await watch.poll()
                assert not watch.jobs.idle
            while not watch.jobs.idle:
                await asyncio.sleep(0.05)
                await watch.poll()
            assert watch.jobs.idle[A].since >= begun + 2.0 * IDLE_S
        finally:
            await live.close()

    asyncio.run(life())


@pytest.mark.parametrize("stop_s", [None, 1.0])
def test_an_idle_job_is_told_and_stopped_only_by_a_limit(stop_s: float | None) -> None:
    async def life() -> None:
        live = Live(Settings(engine="simulated:cluster=1x4:a100,speed=1000", policy="fifo"))
        await live.open()
        try:
            driver = live.driver
            await driver.submit(Job(A, demand=Demand(4), hints={"duration_s": 1e7}))
            while driver.job(A).state != "running":
                await asyncio.sleep(0.01)
            await driver.write_down(Reported(A, 1, Report(sm=0.0)))
            watch = IdleWatch(driver, stop_s)
            await watch.poll()
            while not watch.jobs.idle:
                await asyncio.sleep(0.05)
                await watch.poll()

            record = driver.ledger.jobs[A]
            assert [level for _, level, _ in record.notices] == ["idle"]
            at_level = Noticed(A, 1, "idle", "holds 4 GPUs"), Noticed(A, 1, "warning", "NaN")
            reasons = [
                [change.reason for change in changes_of(driver, event)] for event in at_level
            ]
            assert reasons == [["holds 4 GPUs"], []]
            if stop_s is None:
                reason = JobView(driver).reason(driver.job(A))
                assert reason.startswith("holds 4 GPUs and has not used them for ")
            else:
                assert record.reason.startswith("stopped: it holds 4 GPUs")
        finally:
            await live.close()

    asyncio.run(life())
