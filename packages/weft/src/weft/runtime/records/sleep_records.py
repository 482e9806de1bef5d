"""Parts of a job's record about an attempt that sleeps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, assert_never

from weft.core.asleep.ahead import is_ahead
from weft.core.asleep.sleeping import UP, Sleeping
from weft.core.events.event import Awoke, SleepFailed, Slept
from weft.core.model.job import Allocation, JobId
from weft.core.state.state import State
from weft.core.stops import SLEEPS, Rung
from weft.runtime.records.job_records import JobRecord

LEAST_GB = 0.05  # what is not worth a word


def describe_sleep(state: State, job: JobId) -> str:
    """A sentence on where a job sleeps, what it holds and how soon it is back.

    Empty if it does not.
    """
    sleeping, row = state.asleep.find(job), state.table.find(job)
    if sleeping is None or row is None or not sleeping.there:
        return ""
    frozen = sleeping.rung is Rung.FREEZE
    gb = sleeping.device_gb * sleeping.on.gpus if frozen else sleeping.host_gb
    held = f", {gb:.3g} GB in {'GPU' if frozen else 'host'} memory" if gb >= LEAST_GB else ""
    size = sleeping.device_gb * sleeping.on.gpus or sleeping.host_gb
    times = state.asleep.times
    back_s = times.seconds(state.table.jobs[row], sleeping.node, sleeping.rung, UP, size)
    soon = "at once" if back_s < 1.0 else f"in {back_s:.0f} s"
    if is_ahead(state, sleeping):
        return f"ready on {sleeping.node}{held}: it was started ahead of its turn"
    return f"asleep on {sleeping.node}{held}, back {soon}"


class SleepChange(NamedTuple):
    """The jobs that sleep from now on, and the GPUs the job uses; None as many as before."""

    sleeps: Sleeping | None
    gpus: float | None = None


def lies_down(record: JobRecord, rung: Rung | None) -> Sleeping | None:
    """The sleeper of a job whose devices are taken away by a rung; None if it leaves."""
    if (
        record.sleeps is None
        and record.allocation is not None
        and rung in SLEEPS
        and rung is not None
    ):
        return Sleeping(record.job.id, record.attempt, rung, record.allocation, 0.0)
    return record.sleeps


def goes_on(record: JobRecord, to: Allocation) -> bool:
    """True if a job is given the devices where it sleeps."""
    return record.sleeps is not None and record.sleeps.on.stays(to)


def sleep_after(
    record: JobRecord, at: float, event: Slept | SleepFailed | Awoke
) -> SleepChange | None:
    """The change that an engine's word makes to a record; None for none."""
    sleeps = record.sleeps
    if sleeps is None or sleeps.attempt != event.attempt:
        return None
    match event:
        case Slept(_, _, rung, _, host_gb):
            there = replace(sleeps, rung=rung, since=at, there=True, host_gb=host_gb)
            return SleepChange(there, 0.0)
        case SleepFailed():
            return SleepChange(sleeps if sleeps.there else None)
        case Awoke():
            on = record.allocation
            if on is None or not sleeps.there:
                return None
            return SleepChange(None, on.counted_gpus)
        case _:
            assert_never(event)
