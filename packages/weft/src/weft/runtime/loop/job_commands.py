"""Commands for jobs that have not ended: suspend, resume, change the priority."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weft.core.events.event import PriorityChanged, Resumed, Suspended
from weft.core.model.job import JobId, Tier
from weft.core.stops import Rung
from weft.runtime.records.status import find_record

if TYPE_CHECKING:
    from weft.runtime.loop.driver import Driver


async def suspend(driver: Driver, job: JobId, by: str) -> Rung:
    """Let a job leave its devices and wait until `resume`; on disk on return: how it leaves them.

    One that has ended or is suspended stays as it is. Unknown ones are refused.
    """
    rung = driver.scheduler.choose_stop(driver.now, job)
    if not find_record(driver.ledger, job).outcome:
        await driver.write_down(Suspended(job, by, rung))
    return rung


def loses_work(driver: Driver, job: JobId) -> bool:
    """True if nothing but a restart from the beginning is possible if a job is suspended now."""
    state, record = driver.scheduler.state, find_record(driver.ledger, job)
    if not driver.engine.real or record.running is None or record.suspended is not None:
        return False
    launch = record.job.launch
    saves = record.saved is not None or bool(launch is not None and launch.checkpoint)
    if saves or state.live.is_resizable(job, record.attempt) or state.asleep.find(job) is not None:
        return False
    return driver.scheduler.choose_stop(driver.now, job) is Rung.RESTART


async def resume(driver: Driver, job: JobId) -> None:
    """Let a suspended job go on when there is room; others stay as they are."""
    if not find_record(driver.ledger, job).outcome:
        await driver.write_down(Resumed(job))


async def set_priority(driver: Driver, job: JobId, priority: float, tier: Tier) -> None:
    """Give a job another priority; what it holds it keeps until a decision says otherwise."""
    record = find_record(driver.ledger, job)
    if record.outcome:
        return
    driver.incoming[job] = replace(record.job, priority=priority, tier=tier)
    try:
        await driver.write_down(PriorityChanged(job, priority, tier))
    finally:
        driver.incoming.pop(job, None)
