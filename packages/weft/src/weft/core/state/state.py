"""The scheduler's state: a fold of events.

Only this module keeps the two truths of capacity apart: what is promised (the ledger, which
policies see) and what is not yet vacated (which holds back starts).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import assert_never

from weft.core.asleep import fold as asleep
from weft.core.asleep.sleeping import Asleep
from weft.core.errors import WeftError
from weft.core.events.actions import Action, Adjust, OrderMemory, Reject, Start, Stop
from weft.core.events.event import (
    Awoke,
    Cancelled,
    DeadlineMissed,
    Decided,
    Event,
    Failed,
    Finished,
    Foretold,
    LoanRecalled,
    Measured,
    NodeDown,
    NodeUp,
    Noticed,
    Observed,
    PolicyChanged,
    PriorityChanged,
    Refitted,
    Reported,
    Resizable,
    Resized,
    ResizeFailed,
    Resumed,
    Saved,
    SleepFailed,
    Slept,
    Started,
    StartedAhead,
    StartFailed,
    Stopped,
    Submitted,
    Suspended,
    Woken,
)
from weft.core.events.job_end import Ended, EndKind
from weft.core.events.recent_events import RecentEvents
from weft.core.model.cluster import Cluster
from weft.core.model.dependencies import Dependencies
from weft.core.model.job import Allocation, Job, JobId, MemoryPlace, Stage
from weft.core.state import node_events as nodes
from weft.core.state.capacity import Capacity
from weft.core.state.cells import TableColumns
from weft.core.state.live_changes import LiveChanges
from weft.core.state.releasing import Releasing
from weft.core.state.table import JobTable
from weft.core.stops import SLEEPS, Rung


class State:
    """Jobs, promises and what is still being vacated."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = self.whole = cluster
        self.table = JobTable()
        self.submissions = self.decisions = 0
        self.wake_at: float | None = None
        self.recalled = 0  # loaned machines that are wanted back and still here
        self.memory_order: Mapping[JobId, MemoryPlace] = {}  # as plans say
        self.ended: list[Ended] = []
        self._known_ends: dict[JobId, bool] = {}
        self._last_known: Ended | None = None
        self.reports: dict[JobId, Reported] = {}
        self.releasing = Releasing()
        self.live = LiveChanges(self.releasing)
        self.asleep, self.dependencies, self.history = Asleep(), Dependencies(), RecentEvents()

    def fold(self, now: float, event: Event) -> list[Action]:  # noqa: C901, PLR0911, PLR0912, PLR0915 - one case an event
        """Take in one fact; return what follows from it without any decision.

        Raises StateError, with the history of the job, for one that cannot be.
        """
        self.history.events.append((now, event))
        try:
            match event:
                case Started(job, attempt):
                    self._started(now, job, attempt)
                case Finished(job, attempt):
                    return self._leave(now, job, attempt, EndKind.COMPLETED)
                case Submitted(job):
                    self._submitted(now, job)
                case Stopped(job, attempt):
                    return self._stopped(now, job, attempt)
                case Decided():
                    return self._decided(now, event)
                case Failed(job, attempt, _, retry):
                    if not retry:
                        return self._leave(
                            now,
                            job,
                            attempt,
                            EndKind.LOST if event.lost else EndKind.FAILED,
                            event.code,
                        )
                    return self._retry(now, job, attempt, alone=event.lost and event.out_of_memory)
                case StartFailed(job, attempt):
                    return self._retry(now, job, attempt)
                case Cancelled(job):
                    return self._cancelled(now, job)
                case Suspended(job, _, rung):
                    return self._suspended(job, rung)
                case Slept() | SleepFailed() | Awoke() | StartedAhead():
                    return asleep.fold(self, now, event)
                case Saved(job):
                    self.asleep.note_saved(job, self.table)
                case Resumed(job):
                    self.table.suspended.discard(job)
                case PriorityChanged(job, priority, tier):
                    if (row := self.table.find(job)) is not None:
                        self.releasing.rename(self.table.set_priority(row, priority, tier))
                case NodeDown(node):
                    return nodes.take_down(self, now, node)
                case NodeUp(node):
                    return nodes.bring_up(self, now, node)
                case LoanRecalled(count):
                    self.recalled += count
                case Reported():
                    self._reported(event)
                case Resizable(job, attempt, state_gb):
                    if self.table.find_attempt(job, attempt) is not None:
                        self.live.add_resizable(job, attempt, state_gb)
                case Resized(job, attempt, epoch) | ResizeFailed(job, attempt, epoch):
                    row = self.table.find_attempt(job, attempt)
                    if row is None or not self.live.is_answered(job, attempt, epoch):
                        return []
                    if isinstance(event, Resized):
                        return self.live.finish(now, row, self.table)
                    return self._restart(now, row)
                case Woken():
                    self.wake_at = None
                case PolicyChanged():
                    return self._forget_order()
                case (
                    Noticed() | DeadlineMissed() | Measured() | Observed() | Refitted() | Foretold()
                ):
                    pass  # nothing that decisions follow from
                case _:
                    assert_never(event)
        except Exception as error:
            raise self.history.error(now, event, error) from error
        return []

    def expects(self, job: JobId, attempt: int) -> bool:
        """True if news of this attempt matters: it is promised devices, leaves them, or sleeps."""
        if self.table.find_attempt(job, attempt) is not None or (job, attempt) in self.releasing:
            return True
        return self.asleep.find(job, attempt) is not None

    def leaving(self, job: JobId, attempt: int) -> bool:
        """True if this attempt was asked to give its devices back and has not yet."""
        return (job, attempt) in self.releasing

    # ---- one method an event

    def _submitted(self, now: float, job: Job) -> None:
        if job.id in self.table:
            raise WeftError(f"job {job.id!r} was submitted twice")
        self.table.add(job, self.submissions, now)
        self.submissions += 1
        if job.conditional:
            self.dependencies.add(job, self.table, self._outcomes())

    def _outcomes(self) -> Mapping[JobId, bool]:
        """Map jobs that left lately to whether they finished; made again when another has left."""
        last = self.ended[-1] if self.ended else None
        if last is not self._last_known:
            self._known_ends = {end.job.id: end.finished for end in self.ended}
            self._last_known = last
        return self._known_ends

    def _reported(self, event: Reported) -> None:
        job, attempt, table = event.job, event.attempt, self.table
        row = table.find(job)
        if row is None:
            return
        self.reports[job] = event
        if table.allocations[row] is None or table.get(row, TableColumns.ATTEMPT) != attempt:
            return
        if event.report.trains:
            table.set(row, TableColumns.REPORTED, attempt)

    def _started(self, now: float, job: JobId, attempt: int) -> None:
        table = self.table
        row = table.find_attempt(job, attempt)
        if row is None:
            return
        on = table.allocations[row]
        assert on is not None
        table.set(row, TableColumns.STAGE, Stage.RUNNING)
        table.meters_on(row, now, on.gpus * on.sharing.share)

    def _stopped(self, now: float, job: JobId, attempt: int) -> list[Action]:
        if (job, attempt) not in self.releasing:
            return []
        if job in self.table:
            row = self.table.row(job)
            self.table.meters_off(row, now)
            if self.table.allocations[row] is None:
                self.table.set(row, TableColumns.STAGE, Stage.PENDING)
        return [*self.releasing.on_attempt_gone(job, attempt)]

    def _retry(self, now: float, job: JobId, attempt: int, *, alone: bool = False) -> list[Action]:
        row = self.table.find_attempt(job, attempt)
        slept = self.asleep.find(job, attempt) is not None
        if slept or row is not None:
            at = self.table.row(job)
            self.table.note_failure(at, now)
            if alone and self.table.jobs[at].model:  # programs without a name are learned
                self.releasing.rename(self.table.keep_alone(at))
        if row is None:
            self.asleep.drop(job) if slept else None
            return self._stopped(now, job, attempt)
        return self._vacate(now, row)

    def _cancelled(self, now: float, job: JobId) -> list[Action]:
        if job not in self.table:
            return []
        actions = self.end_attempts(job)
        self._remove(now, job, self.table.row(job), EndKind.CANCELLED)
        return actions

    def _suspended(self, job: JobId, rung: Rung) -> list[Action]:
        if job not in self.table:
            return []
        self.table.suspended.add(job)
        return self._take_away(job, rung)

    def _decided(self, now: float, decided: Decided) -> list[Action]:
        self.decisions, self.wake_at = decided.number, decided.wake_at
        self.table.promised.update(decided.promised)
        actions: list[Action] = []
        keep: list[tuple[int, Allocation]] = []
        begin: list[tuple[JobId, Allocation]] = []
        grow: list[tuple[int, Allocation]] = []
        live = frozenset(decided.live)
        for job, to in decided.changes.items():
            row = self.table.row(job)
            was = self.table.allocations[row]
            if to is not None and was is not None and was.stays(to):
                self.free.give(was)
                keep.append((row, to))
                continue
            if to is not None and was is not None and job in live:
                self.free.give(was)
                grow.append((row, to))
                continue
            if was is not None:
                actions += self._take_away(job, decided.sleeps.get(job, Rung.RESTART))
            if to is not None:
                begin.append((job, to))
        actions += asleep.deepen_sleep(self, decided)
        for row, to in keep:
            actions += self._change(now, row, to)
        if grow:
            actions += self.live.start_resizes(now, grow, self.table, self.free)
        for job, reason in decided.rejected.items():
            actions += self._take_away(job)
            self._remove(now, job, self.table.row(job), EndKind.REJECTED)
            actions.append(Reject(job, reason))
        for job, to in begin:
            actions += self._promise(job, to)
        return actions + self._order_memory(decided)

    def _order_memory(self, decided: Decided) -> list[Action]:
        if not decided.memory_order:
            return []
        changed = {**self.memory_order, **decided.memory_order}
        self.memory_order = {job: at for job, at in changed.items() if job in self.table}
        return [OrderMemory(self.memory_order)]

    def _forget_order(self) -> list[Action]:
        """Take back what another policy said."""
        before, self.memory_order = self.memory_order, {}
        return [OrderMemory({})] if before else []

    def find_reordered(self, order: Mapping[JobId, MemoryPlace]) -> dict[JobId, MemoryPlace]:
        """The numbers in an order for device memory that are not as they were."""
        return {job: at for job, at in order.items() if self.memory_order.get(job) != at}

    # ---- promises

    def promise_all(self, starts: Mapping[JobId, Allocation | None]) -> list[Action]:
        """Start jobs that hold nothing, where a decision is made and not recorded."""
        return [a for job, on in starts.items() if on for a in self._promise(job, on)]

    def _promise(self, job: JobId, to: Allocation) -> list[Action]:
        row, actions = self.table.row(job), list[Action]()
        if (sleeping := self.asleep.sleepers.get(job)) is not None:
            if sleeping.on.stays(to):
                return asleep.resume(self, row, to, sleeping)
            actions = asleep.stop_sleeper(self, job)  # it sleeps elsewhere
        self.free.take(to)
        start = Start(self.table.jobs[row], to, self.table.hold(row, to))
        if not self.releasing or not self.releasing.hold_back(start):
            actions.append(start)
        return actions

    def _take_away(self, job: JobId, rung: Rung = Rung.RESTART) -> list[Action]:
        row = self.table.row(job)
        was = self.table.allocations[row]
        if was is None:
            return []
        if job in self.asleep.sleepers:
            return asleep.resume_sleep(self, row)
        if rung in SLEEPS:
            return asleep.put_to_sleep(self, row, rung)
        attempt = int(self.table.get(row, TableColumns.ATTEMPT))
        self.free.give(was)
        self.table.allocations[row] = None
        self.table.set(row, TableColumns.HELD, 0.0)
        leaves = self.live.ask_to_leave(job, attempt, was)
        self.table.set(row, TableColumns.STAGE, Stage.STOPPING if leaves else Stage.PENDING)
        return [Stop(job, attempt)] if leaves else []

    def end_attempts(self, job: JobId) -> list[Action]:
        return [*self._take_away(job), *asleep.stop_sleeper(self, job)]

    def _restart(self, now: float, row: int) -> list[Action]:
        """A change that was not made live is made by a checkpoint."""
        job, to = self.table.jobs[row].id, self.table.allocations[row]
        assert to is not None
        self.table.meters_off(row, now)
        self.table.meters_on(row, now, self.live.under_way[job].holds.gpus * to.sharing.share)
        return [*self._take_away(job), *self._promise(job, to)]

    def _change(self, now: float, row: int, to: Allocation) -> list[Action]:
        """Other terms on the same devices."""
        job = self.table.jobs[row]
        attempt = int(self.table.get(row, TableColumns.ATTEMPT))
        self.free.take(to)
        self.table.allocations[row] = to
        self.table.set(row, TableColumns.HELD, to.gpus)
        if (resizes := self.live.change_held_back(job, to)) is not None:
            return [*resizes]
        if self.releasing.holds(job.id):
            self.releasing.replace_start(job.id, to)
            return []
        if self.table.get(row, TableColumns.STAGE) == Stage.RUNNING:
            self.table.meters_off(row, now)
            self.table.meters_on(row, now, to.gpus * to.sharing.share)
        return [Adjust(job.id, attempt, to)]

    # ---- leaving

    def _leave(
        self, now: float, job: JobId, attempt: int, how: EndKind, code: int | None = None
    ) -> list[Action]:
        row = self.table.find_attempt(job, attempt)
        if row is not None and job not in self.asleep.sleepers:
            if (on := self.table.allocations[row]) is not None:
                self.free.give(on)
            self._remove(now, job, row, how, code)
            return self.live.on_job_end(job)
        if row is not None:
            actions = self._vacate(now, row)
            self._remove(now, job, row, how, code)
            return actions
        if (job, attempt) not in self.releasing:
            if self.asleep.find(job, attempt) is not None:
                self._remove(now, job, self.table.row(job), how, code)
            return []
        # It ended before the stop that was asked of it took effect.
        if job in self.table:
            self.releasing.drop(job)
            row = self.table.row(job)
            if (on := self.table.allocations[row]) is not None:
                self.free.give(on)
            self._remove(now, job, row, how, code)
        return [*self.releasing.on_attempt_gone(job, attempt)]

    def _vacate(self, now: float, row: int) -> list[Action]:
        on = self.table.allocations[row]
        assert on is not None
        self.free.give(on)
        self.table.meters_off(row, now)
        self.table.allocations[row] = None
        self.table.set(row, TableColumns.HELD, 0.0)
        self.table.set(row, TableColumns.STAGE, Stage.PENDING)
        job, attempt = self.table.jobs[row].id, int(self.table.get(row, TableColumns.ATTEMPT))
        actions = self.live.on_job_end(job)
        if self.asleep.drop(job) is not None:
            self.releasing.drop(job)
            if (job, attempt) in self.releasing:
                actions += self.releasing.on_attempt_gone(job, attempt)
        return actions

    def _remove(
        self, now: float, job: JobId, row: int, how: EndKind, code: int | None = None
    ) -> None:
        table = self.table
        ran, service = table.meters(row, now)
        how = how.or_timeout(table.jobs[row], ran)
        finished = how is EndKind.COMPLETED
        self.ended.append(Ended(table.jobs[row], ran, service, finished, how, code, now))
        table.remove(row)
        self.asleep.forget(job)
        self.reports.pop(job, None)
        self.dependencies.remove_ended(job, finished=finished)

    def rebuild(self, cluster: Cluster) -> None:
        self.cluster = cluster
        vars(self).pop("free", None)

    @cached_property
    def free(self) -> Capacity:
        """Capacity not promised to any job; counted on demand, as machines come in hundreds."""
        free = Capacity(self.cluster)
        for on in filter(None, self.table.allocations):
            free.take(on)
        return free
