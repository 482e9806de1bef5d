"""A service whose running jobs are changed only where that pays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.scenarios.live import run_virtually
from weft.app.serve.live import Live, Settings
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch

CHANGING = "optimus:interval=1"
LIVELY = f"steady:min_run_s=0,margin=0|{CHANGING}"


def test_a_job_that_keeps_failing_does_not_drive_its_neighbour_from_restart_to_restart() -> None:
    lively, _ = run_virtually(lambda seconds: _beside_a_failing_job(LIVELY, seconds))

    restarts, tries = run_virtually(lambda seconds: _beside_a_failing_job(CHANGING, seconds))

    assert restarts <= 2 < lively
    assert tries >= 4


async def _beside_a_failing_job(policy: str, seconds: Callable[[], float]) -> tuple[int, int]:
    """Restarts of the neighbour in a few minutes, and starts of the job that fails."""
    engine = "simulated:cluster=1x4:v100,speed=1"
    live = Live(Settings(engine=engine, policy=policy, decide_in="service"), seconds)
    await live.open()
    hints = {"duration_s": 3000.0}
    await live.driver.submit(Job(JobId("neighbour"), demand=Demand(1, 1, 4), hints=hints))
    await asyncio.sleep(5.0)
    hints = {"duration_s": 600.0, "fails_at_s": 0.5, "fails_times": 50.0}
    often = Launch(("true",), retries=100, backoff_s=0.1)
    await live.driver.submit(Job(JobId("failing"), hints=hints, launch=often))
    await asyncio.sleep(150.0)
    neighbour, failing = (live.driver.job(JobId(name)) for name in ("neighbour", "failing"))
    await live.close()
    return neighbour.record.restarts, failing.record.starts
