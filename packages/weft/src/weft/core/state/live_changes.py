"""Changes of devices while jobs train: which jobs can make them, and which are under way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from weft.core.events.actions import Action, Resize
from weft.core.model.job import Allocation, Job, JobId, Slice, Stage
from weft.core.state.capacity import Capacity
from weft.core.state.cells import TableColumns
from weft.core.state.releasing import Releasing, Waits, devices_of
from weft.core.state.table import JobTable
from weft.frozen import frozen

Device = tuple[str, int]


@frozen
class PendingResize:
    """A change under way: number `epoch` of the attempt.

    `holds` is all that the job may hold beside the devices it goes to.
    """

    job: JobId
    attempt: int
    epoch: int
    holds: Allocation


@frozen
class ResizableAttempt:
    """An attempt that can change its devices as it trains; `epoch` is its last change."""

    job: JobId
    attempt: int
    epoch: int = 0
    state_gb: float = 0.0


class LiveChanges:
    """Live changes that a state knows of; `releasing` is what the state holds starts back by."""

    def __init__(self, releasing: Releasing) -> None:
        self._releasing = releasing
        self.able: dict[JobId, ResizableAttempt] = {}
        self.under_way: dict[JobId, PendingResize] = {}

    def add_resizable(self, job: JobId, attempt: int, state_gb: float) -> None:
        """An attempt can; told again it changes nothing."""
        if not self.is_resizable(job, attempt):
            self.able[job] = ResizableAttempt(job, attempt, 0, state_gb)

    def is_resizable(self, job: JobId, attempt: int) -> bool:
        """True if an attempt can change its devices as it trains."""
        able = self.able.get(job)
        return able is not None and able.attempt == attempt

    def all_held(self, job: JobId, on: Allocation) -> Allocation:
        """All that a job may hold, of which it is promised `on`."""
        resizing = self.under_way.get(job)
        if resizing is None:
            return on
        return resizing.holds if self._releasing.holds(job) else join(resizing.holds, on)

    def live_jobs(
        self,
        changes: Mapping[JobId, Allocation | None],
        table: JobTable,
        restarts: Collection[JobId] = (),
    ) -> tuple[JobId, ...]:
        """Return changes that jobs can make while they train, less the `restarts`."""
        if not self.able:
            return ()
        able, held = set[JobId](), dict[JobId, Allocation]()
        for job, to in changes.items():
            row = table.row(job)
            if (was := table.allocations[row]) is None:
                continue
            held[job] = self.all_held(job, was)
            runs = table.get(row, TableColumns.STAGE) == Stage.RUNNING
            moves = to is not None and to.devices != was.devices and job not in restarts
            moves = moves and to is not None and was.same_way(to)
            if moves and runs and self.is_resizable(job, int(table.get(row, TableColumns.ATTEMPT))):
                able.add(job)
        return pick_live(changes, held, able) if able else ()

    def start_resizes(
        self, now: float, changes: list[tuple[int, Allocation]], table: JobTable, free: Capacity
    ) -> list[Action]:
        """Other devices for jobs that train on, by row; what they had is given back already."""
        actions: list[Action] = []
        resizes: list[Resize] = []
        for row, to in changes:
            resize, ready = self._promise(now, row, to, table, free)
            actions += ready
            resizes.append(resize)
        for resize in resizes:  # only now is it known what others leave
            actions += self.requests_now(resize)
        return actions

    def _promise(
        self, now: float, row: int, to: Allocation, table: JobTable, free: Capacity
    ) -> tuple[Resize, list[Waits]]:
        job, was = table.jobs[row], table.allocations[row]
        assert was is not None
        holds, before = self.all_held(job.id, was), self.able[job.id]
        self.able[job.id] = able = replace(before, epoch=before.epoch + 1)
        self._releasing.drop(job.id)  # a change that it never got to
        free.take(to)
        table.allocations[row] = to
        table.set(row, TableColumns.HELD, to.gpus)
        self.under_way[job.id] = PendingResize(job.id, able.attempt, able.epoch, holds)
        table.meters_off(row, now)
        table.meters_on(row, now, join(to, holds).gpus * to.sharing.share)
        ready = self._releasing.start_shedding(job.id, holds, to)
        return Resize(job, able.attempt, to, able.epoch), ready

    def requests_now(self, resize: Resize) -> list[Resize]:
        """The resizes to ask for now: none while others are still on the new devices."""
        holds = self.under_way[resize.job.id].holds
        return [] if self._releasing.hold_resize(resize, holds) else [resize]

    def change_held_back(self, job: Job, to: Allocation) -> list[Resize] | None:
        """Other terms for a change that is held back; None if there is none."""
        resizing = self.under_way.get(job.id)
        if resizing is None or not self._releasing.drop(job.id):
            return None
        return self.requests_now(Resize(job, resizing.attempt, to, resizing.epoch))

    def is_answered(self, job: JobId, attempt: int, epoch: int) -> bool:
        """True if this answers the last change of a job."""
        resizing = self.under_way.get(job)
        return resizing is not None and (resizing.attempt, resizing.epoch) == (attempt, epoch)

    def finish(self, now: float, row: int, table: JobTable) -> list[Action]:
        """A change was made: what waited for the devices that the job has left."""
        job, on = table.jobs[row].id, table.allocations[row]
        assert on is not None
        del self.under_way[job]
        table.meters_off(row, now)
        table.meters_on(row, now, on.gpus * on.sharing.share)
        return [*self._releasing.on_shed(job)]

    def ask_to_leave(self, job: JobId, attempt: int, on: Allocation) -> bool:
        """An attempt is asked to go from all that it holds; False if no attempt runs."""
        holds = self.all_held(job, on)
        self.able.pop(job, None)
        resizing = self.under_way.pop(job, None) is not None
        if self._releasing.drop(job) and not resizing:
            return False
        self._releasing.leave(job, attempt, holds)
        waited = self._releasing.on_shed(job)
        assert not waited  # what it was to shed it leaves with the rest
        return True

    def on_job_end(self, job: JobId) -> list[Action]:
        """A job has left of itself: what waited for what it was to shed."""
        self.able.pop(job, None)
        if self.under_way.pop(job, None) is None:
            return []
        self._releasing.drop(job)
        return [*self._releasing.on_shed(job)]

    def load(self, saved: Iterable[PendingResize], table: JobTable, held: Collection[str]) -> None:
        """Take up changes that were under way; those of `held` were not asked for yet."""
        self.under_way = {resizing.job: resizing for resizing in saved}
        resizes = [_resize_of(resizing, table) for resizing in self.under_way.values()]
        for resize in resizes:
            self._releasing.start_shedding(
                resize.job.id, self.under_way[resize.job.id].holds, resize.to
            )
        for resize in resizes:
            if resize.job.id in held:
                self.requests_now(resize)

    def pending_resizes(self, table: JobTable) -> list[Resize]:
        """Every change that was asked for and not answered yet."""
        asked = [
            resizing
            for resizing in self.under_way.values()
            if not self._releasing.holds(resizing.job)
        ]
        return [_resize_of(resizing, table) for resizing in asked]


def _resize_of(resizing: PendingResize, table: JobTable) -> Resize:
    row = table.row(resizing.job)
    to = table.allocations[row]
    assert to is not None
    return Resize(table.jobs[row], resizing.attempt, to, resizing.epoch)


def join(allocation: Allocation, other: Allocation) -> Allocation:
    """The devices of both, on the terms of the first."""
    have = {*devices_of(allocation)}
    more = (
        Slice(part.node, tuple(gpu for gpu in part.gpus if (part.node, gpu) not in have))
        for part in other.slices
    )
    return replace(allocation, slices=(*allocation.slices, *(part for part in more if part.gpus)))


def pick_live(
    changes: Mapping[JobId, Allocation | None], held: Mapping[JobId, Allocation], able: set[JobId]
) -> tuple[JobId, ...]:
    """Return changes that can be made live, of jobs that are `able` and what all `held`.

    A job that grows waits until others have left its new devices. That is safe where they are
    stopped or can leave first themselves; jobs that would wait for each other are stopped.
    """
    left = {job: to for job in able if (to := changes.get(job)) is not None}
    leavers: dict[Device, set[JobId]] = {}
    for job, to in changes.items():
        if (was := held.get(job)) is not None:
            kept = {*devices_of(to)} if to is not None else set()
            for device in devices_of(was):
                if device not in kept:
                    leavers.setdefault(device, set()).add(job)
    live: dict[JobId, None] = {}
    while ready := [job for job in left if not _waits_for(job, left, held, leavers)]:
        for job in ready:
            live[job] = None
            del left[job]
    return tuple(job for job in changes if job in live)


def _waits_for(
    job: JobId,
    left: Mapping[JobId, Allocation],
    held: Mapping[JobId, Allocation],
    leavers: Mapping[Device, set[JobId]],
) -> bool:
    """True if a job of `left` waits for another one of them."""
    own = {*devices_of(held[job])}
    wanted = (device for device in devices_of(left[job]) if device not in own)
    return any(other in left for device in wanted for other in leavers.get(device, ()))
