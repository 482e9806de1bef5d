"""Commands for jobs that have not ended: suspend, resume, change the priority."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weft.core.events.event import PriorityChanged, Resumed, Suspended
from weft.core.model.job import JobId, Tier
from weft.runtime.records.status import find_record

if TYPE_CHECKING:
    from weft.runtime.loop.driver import Driver


async def suspend(driver: Driver, job: JobId, by: str) -> None:
    """Let a job save, leave its devices and wait until `resume`; on disk on return.

    One that has ended or is suspended stays as it is. Unknown ones are refused.
    """
    if not find_record(driver.ledger, job).outcome:
        await driver.write_down(Suspended(job, by))


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
