"""Changes of the state when attempts fall asleep, sleep, wake, or fail to."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from weft.core.asleep.sleeping import Sleeping
from weft.core.events.actions import Action, Resume, Start, Stop
from weft.core.events.event import Awoke, Decided, SleepFailed, Slept, StartedAhead
from weft.core.model.job import EXCLUSIVE, Allocation, JobId, Stage
from weft.core.state.cells import TableColumns
from weft.core.state.parts import StateParts
from weft.core.stops import SLEEPS, Rung


def put_to_sleep(state: StateParts, row: int, rung: Rung) -> list[Action]:
    """A running job gives its devices back by falling asleep on them."""
    job, on = state.table.jobs[row].id, _give_back(state, row)
    attempt = int(state.table.get(row, TableColumns.ATTEMPT))
    state.table.set(row, TableColumns.STAGE, Stage.STOPPING)
    leaves = state.live.ask_to_leave(job, attempt, on)
    assert leaves
    report = state.reports.get(job)
    gb = report.report.mem_gb if report is not None and report.attempt == attempt else None
    return [state.asleep.ask_to_sleep(Sleeping(job, attempt, rung, on, 0.0, device_gb=gb or 0.0))]


def _start_ahead(state: StateParts, now: float, event: StartedAhead) -> list[Action]:
    """A job that waits is started, and taken to be on its way to sleep until it does."""
    job, attempt, table = event.job, event.attempt, state.table
    row = table.row(job)
    table.set(row, TableColumns.ATTEMPT, attempt)
    table.set(row, TableColumns.STAGE, Stage.STOPPING)
    state.releasing.leave(job, attempt, replace(event.on, slices=()))  # it holds no devices
    gb = event.on.sharing.gpu_mem_gb or 0.0
    state.asleep.ask_to_sleep(Sleeping(job, attempt, Rung.FREEZE, event.on, now, device_gb=gb))
    return [Start(table.jobs[row], replace(event.on, sharing=EXCLUSIVE), attempt)]


def resume_sleep(state: StateParts, row: int) -> list[Action]:
    """A job that was to wake loses its devices before it has."""
    job, on = state.table.jobs[row].id, _give_back(state, row)
    sleeping = state.asleep.sleepers[job]
    if state.releasing.drop(job):  # no one had asked it to wake yet
        state.table.set(
            row, TableColumns.STAGE, Stage.PENDING if sleeping.there else Stage.STOPPING
        )
        return []
    state.table.set(row, TableColumns.STAGE, Stage.STOPPING)
    state.releasing.leave(job, sleeping.attempt, on)
    return [state.asleep.ask_to_sleep(replace(sleeping, there=False, was=None))]


def deepen_sleep(state: StateParts, decided: Decided) -> list[Action]:
    """Attempts that sleep and have to leave their devices' memory as well."""
    if not decided.sleeps:
        return []
    deeper = [sleep for sleep in decided.sleeps.items() if sleep[0] not in decided.changes]
    return [action for job, rung in deeper for action in _deepen(state, job, rung)]


def _deepen(state: StateParts, job: JobId, rung: Rung) -> list[Action]:
    sleeping = state.asleep.sleepers[job]
    if rung not in SLEEPS:
        return stop_sleeper(state, job)
    state.releasing.leave(job, sleeping.attempt, sleeping.on)
    state.table.set(state.table.row(job), TableColumns.STAGE, Stage.STOPPING)
    return [state.asleep.ask_to_sleep(replace(sleeping, there=False, rung=rung, was=sleeping.rung))]


def resume(state: StateParts, row: int, to: Allocation, sleeping: Sleeping) -> list[Action]:
    """A job that sleeps is given its devices again."""
    table, job = state.table, state.table.jobs[row]
    state.free.take(to)
    table.allocations[row] = to
    table.set(row, TableColumns.HELD, to.gpus)
    table.set(row, TableColumns.STAGE, Stage.STARTING)
    wake_up = Resume(job, to, sleeping.attempt)
    return [] if state.releasing and state.releasing.hold_back(wake_up) else [wake_up]


def stop_sleeper(state: StateParts, job: JobId) -> list[Action]:
    """End an attempt that sleeps, or is about to; nothing if there is none."""
    sleeping = state.asleep.drop(job)
    if sleeping is None:
        return []
    if (job, sleeping.attempt) not in state.releasing:
        nowhere = replace(sleeping.on, slices=())  # its devices are others' by now
        state.releasing.leave(job, sleeping.attempt, nowhere)
    if (row := state.table.find(job)) is not None:
        state.table.set(row, TableColumns.STAGE, Stage.STOPPING)
    return [Stop(job, sleeping.attempt)]


def fold(
    state: StateParts, now: float, event: Slept | SleepFailed | Awoke | StartedAhead
) -> list[Action]:
    """An attempt is to begin asleep, or what an engine says about one that was to sleep or wake."""
    match event:
        case StartedAhead():
            return _start_ahead(state, now, event)
        case Slept():
            return _slept(state, now, event)
        case SleepFailed():
            return _not_slept(state, now, event)
        case Awoke():
            return _awoke(state, now, event)
        case _:
            assert_never(event)


def _slept(state: StateParts, now: float, event: Slept) -> list[Action]:
    """An attempt sleeps: jobs that waited for its devices may have them."""
    job, attempt, table = event.job, event.attempt, state.table
    sleeping = state.asleep.find(job, attempt)
    if sleeping is None or sleeping.there or (job, attempt) not in state.releasing:
        return []
    row = table.row(job)
    table.meters_off(row, now)
    if table.allocations[row] is None:
        table.set(row, TableColumns.STAGE, Stage.PENDING)
    state.asleep.mark_asleep(now, table.jobs[row], event.rung, event.took_s, event.host_gb)
    return [*state.releasing.on_attempt_gone(job, attempt)]


def _not_slept(state: StateParts, now: float, event: SleepFailed) -> list[Action]:
    """An attempt could not be put to sleep: it is stopped, unless it has its devices again."""
    job, attempt, table = event.job, event.attempt, state.table
    sleeping = state.asleep.find(job, attempt)
    if sleeping is None or sleeping.there or (job, attempt) not in state.releasing:
        return []
    state.asleep.mark_refused(job)
    row = table.row(job)
    if sleeping.was is not None:  # it sleeps on as it did
        state.asleep.sleepers[job] = replace(sleeping, there=True, rung=sleeping.was, was=None)
        if table.allocations[row] is None:
            table.set(row, TableColumns.STAGE, Stage.PENDING)
        return [*state.releasing.on_attempt_gone(job, attempt)]
    on = table.allocations[row]
    if on is None:
        return [Stop(job, attempt)]
    state.releasing.drop(job)
    table.set(row, TableColumns.STAGE, Stage.RUNNING)
    table.meters_on(row, now, on.gpus * on.sharing.share)
    return [*state.releasing.on_attempt_gone(job, attempt)]


def _awoke(state: StateParts, now: float, event: Awoke) -> list[Action]:
    job, table = event.job, state.table
    sleeping, row = state.asleep.find(job, event.attempt), table.find(job)
    if sleeping is None or row is None or not sleeping.there or state.releasing.holds(job):
        return []
    on = table.allocations[row]
    if on is not None:
        state.asleep.wake(table.jobs[row], event.took_s)
        table.set(row, TableColumns.STAGE, Stage.RUNNING)
        table.meters_on(row, now, on.gpus * on.sharing.share)
    return []


def _give_back(state: StateParts, row: int) -> Allocation:
    on = state.table.allocations[row]
    assert on is not None
    state.free.give(on)
    state.table.allocations[row] = None
    state.table.set(row, TableColumns.HELD, 0.0)
    return on
