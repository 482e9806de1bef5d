"""What a job's record says of an attempt that sleeps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, assert_never

from weft.core.asleep.sleeping import Sleeping
from weft.core.events import Awoke, SleepFailed, Slept
from weft.core.model import Allocation
from weft.core.stops import SLEEPS, Rung
from weft.runtime.job_records import JobRecord


class SleepChange(NamedTuple):
    """Who sleeps from now on, and how many GPUs the job uses; None as many as before."""

    sleeps: Sleeping | None
    gpus: float | None = None


def lies_down(one: JobRecord, rung: Rung | None) -> Sleeping | None:
    """What sleeps of a job whose devices are taken away by a rung; None if it leaves."""
    if one.sleeps is None and one.allocation is not None and rung in SLEEPS and rung is not None:
        return Sleeping(one.job.id, one.attempt, rung, one.allocation, 0.0)
    return one.sleeps


def goes_on(one: JobRecord, to: Allocation) -> bool:
    """Whether what a job is given is where it sleeps."""
    return one.sleeps is not None and one.sleeps.on.devices == to.devices


def sleep_after(
    one: JobRecord, at: float, event: Slept | SleepFailed | Awoke
) -> SleepChange | None:
    """What an engine's word means for a record; None for nothing."""
    sleeps = one.sleeps
    if sleeps is None or sleeps.attempt != event.attempt:
        return None
    match event:
        case Slept(_, _, rung, _, host_gb):
            there = replace(sleeps, rung=rung, since=at, there=True, host_gb=host_gb)
            return SleepChange(there, 0.0)
        case SleepFailed():
            return SleepChange(sleeps if sleeps.there else None)
        case Awoke():
            on = one.allocation
            if on is None or not sleeps.there:
                return None
            return SleepChange(None, on.gpus * on.sharing.share)
        case _:
            assert_never(event)
