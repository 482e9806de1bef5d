"""Failures that are the scheduler's fault: jobs that others on their devices brought down."""

from __future__ import annotations

from dataclasses import replace

from weft.core.events import event as facts
from weft.core.model.job import Allocation, JobId
from weft.core.state.releasing import devices_of
from weft.core.state.state import State
from weft.core.stops import Rung
from weft.wire.gpus.faults import is_fault, is_of_others

FAULT_S = 10.0  # in which all clients of a GPU notice the fault of one


def excuse(
    event: facts.Failed | facts.StartFailed, state: State, row: int
) -> facts.Failed | facts.StartFailed:
    """The failure of a row, marked as lost where its neighbours are to blame."""
    sleeping = state.asleep.find(event.job, event.attempt)
    on = state.table.allocations[row] or (None if sleeping is None else sleeping.on)
    beside = on is not None and _is_beside_sleepers(state, event.job, on)
    return _blame(event, on, after_fault=_follows_fault(state), beside=beside)


def _is_beside_sleepers(state: State, job: JobId, on: Allocation) -> bool:
    """Whether others that are frozen hold memory of the same devices."""
    others = [sleeper for sleeper in state.asleep.sleepers.values() if sleeper.job != job]
    devices = {*devices_of(on)}
    return any(
        sleeper.rung is Rung.FREEZE and not devices.isdisjoint(devices_of(sleeper.on))
        for sleeper in others
    )


def _follows_fault(state: State) -> bool:
    """Whether the fault of a GPU ended a job that shared it a moment ago."""
    events = state.story.events
    return any(
        isinstance(event, facts.Failed) and event.lost and is_fault(event.reason)
        for at, event in events
        if at >= events[-1][0] - FAULT_S
    )


def _blame(
    event: facts.Failed | facts.StartFailed,
    on: Allocation | None,
    *,
    after_fault: bool,
    beside: bool,
) -> facts.Failed | facts.StartFailed:
    """A job that ran out of the memory that it was given beside others did nothing wrong.

    Nor need one that a GPU's fault ended beside others: under MPS it ends all of them.
    """
    if not isinstance(event, facts.Failed) or on is None:
        return event
    capped = on.sharing.gpu_mem_gb is not None or on.sharing.share < 1.0 or beside
    fault = is_fault(event.reason) and (on.sharing.share < 1.0 or after_fault)
    if not fault and not (event.out_of_memory and capped):
        return event
    why = "ran out of GPU memory beside other jobs, so it starts again alone"
    if fault:
        own = not is_of_others(event.reason)
        why = "a fault of the GPU that it shares ended it, so it starts again" + " alone" * own
        event = replace(event, gpu_fault=own)
    return replace(event, reason=f"{why}: {event.reason}", lost=True, final=False)
