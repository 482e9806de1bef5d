"""Reservations, maintenance and drained devices, around any policy.

What is kept for others is taken in the ledger before the policy is asked, as if it were held;
jobs that may use it are asked about first. Jobs in the way when a window begins are stopped,
unless it may run to its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import inf

import numpy as np

from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.about import About, Controls, Ties, may_idle
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy, recall
from weft.core.plan.reasons import Blocker, Reason, describe_demand
from weft.core.plan.taxonomy import Objective, Preemption, declare
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.reason_news import tell_news
from weft.pieces.wrap.sub_cluster import carry_out, decide_among
from weft.stack.ask_policy import ask
from weft.stack.windows import ReservedWindow, kept_away, read_window, take_away
from weft.stack.wrapper import Wrapper, WrapperMemory

Names = frozenset[str]


@frozen
class ReserveMemory(WrapperMemory):
    """The inner policy's memory, that for jobs kept from other windows, and the reasons of jobs."""

    groups: Mapping[str, object] = field(default_factory=dict)


@frozen
class Reserve(Wrapper):
    """Keep devices for tenants or for maintenance; `windows` are written by name."""

    windows: Mapping[str, str] = field(default_factory=dict)

    adds = declare(Objective.GUARANTEES, Preemption.STOPS)

    def __post_init__(self) -> None:
        self._read()

    @property
    def about(self) -> About:
        """The inner policy's; which nodes it starts jobs on matters while some are kept."""
        inner = self.inner.about
        if not self.windows:
            return inner
        return replace(may_idle(inner, "GPUs are reserved for others"), ties=Ties.NONE)

    def _read(self) -> tuple[ReservedWindow, ...]:
        return tuple(read_window(name, text) for name, text in self.windows.items())

    def decide(self, view: View) -> Plan:
        """The inner policy's decision beside what is kept."""
        kept = recall(view, ReserveMemory)
        windows = [window for window in self._read() if view.now < window.end]
        if not windows:
            plan = ask(self.inner, replace(view, memory=kept.inner))
            return _remember(view, plan, {}, kept, {})
        mark = view.free.mark()
        try:
            turn = _Turn(self.inner, view, windows, kept)
            plan = turn.whole()
        finally:
            view.free.rollback(mark)
        edges = [
            at for window in windows for at in (window.start, window.end) if view.now < at < inf
        ]
        wakes = [at for at in (plan.wake_at, *edges) if at is not None]
        plan = replace(plan, wake_at=min(wakes, default=None))
        return _remember(view, plan, turn.reasons, kept, turn.memories)


class _Turn:
    """One decision: which jobs must leave, then which may start where."""

    def __init__(
        self, inner: Policy, view: View, windows: list[ReservedWindow], kept: ReserveMemory
    ) -> None:
        self._inner, self._first = inner, kept.inner
        names = {window.name for window in windows}
        self.memories = {
            key: group for key, group in kept.groups.items() if names.issuperset(key.split("+"))
        }
        self._windows = {window.name: window for window in windows}
        self._changes: dict[JobId, Allocation | None] = {}
        self._cleared: dict[JobId, Allocation | None] = {}
        self.reasons: dict[JobId, Reason] = {}
        self._before = view
        self._view = self._clear(view)

    def whole(self) -> Plan:
        """The jobs that may use most first, each beside what is decided by then."""
        view = self._view
        plan: Plan | None = None
        stopped = np.zeros(len(view.table), dtype=bool)
        for barred, rows in self._groups(view.waiting()):
            memory = self._first if plan is None else self.memories.get(_key(barred))
            asked = self._ask(rows | view.running(), barred, memory)
            if plan is not None:
                self.memories[_key(barred)] = asked.memory
            stopped |= self._stopped_elsewhere(asked, barred)
            plan = asked if plan is None else _merge(plan, asked)
            self._explain(rows, barred)
        assert plan is not None  # there is at least one group
        if stopped.any():
            self._offer_again(stopped)
        decided, before = {**self._cleared, **self._changes}, self._before
        changes = {job: to for job, to in decided.items() if before.holds(job) != to}
        return replace(plan, changes=changes)

    def _stopped_elsewhere(self, asked: Plan, barred: Names) -> Bools:
        """Rows that gave way to jobs that may use less than they may."""
        view = self._view
        mask = np.zeros(len(view.table), dtype=bool)
        for job, to in asked.changes.items():
            row = view.table.row(job)
            if to is None and self._barred(view.job(row)) != barred:
                mask[row] = True
        return mask

    def _offer_again(self, stopped: Bools) -> None:
        """Offer what is left to these, which were asked about with less than they may use."""
        rows = np.flatnonzero(stopped)
        for row in rows.tolist():
            job = self._view.job(row).id
            self._cleared[job] = self._changes.pop(job)
        self._view = self._view.released(rows)
        for barred, some in self._groups(stopped):
            self._ask(some, barred, None)

    def _clear(self, view: View) -> View:
        """Take away what must be left now; its jobs wait with the others for another place."""
        rows = list[int]()
        for row in map(int, np.flatnonzero(view.running())):
            job, on = view.job(row), view.allocation(row)
            assert on is not None
            for window in self._windows.values():
                if window.when_done or not window.holds(view.now) or window.admits(job, view.now):
                    continue
                firm = window.tenant and not job.stoppable
                if window.touches(on, view.cluster) and not firm:
                    view.free.give(on)
                    self._cleared[job.id] = None
                    self.reasons[job.id] = self._why(view, job, frozenset({window.name}))
                    rows.append(row)
                    break
        return view.released(np.array(rows)) if rows else view

    def _groups(self, waiting: Bools) -> Iterator[tuple[Names, Bools]]:
        """Waiting rows by the windows that they may not use; the freest first."""
        view = self._view
        groups: dict[Names, list[int]] = defaultdict(list)
        for row in map(int, np.flatnonzero(waiting)):
            groups[self._barred(view.job(row))].append(row)
        if not groups:
            groups[self._barred(None)] = []
        for barred, rows in sorted(
            groups.items(), key=lambda group: (len(group[0]), sorted(group[0]))
        ):
            mask = np.zeros(len(view.table), dtype=bool)
            mask[rows] = True
            yield barred, mask

    def _barred(self, job: Job | None) -> Names:
        now = self._view.now
        return frozenset(
            name
            for name, window in self._windows.items()
            if (window.holds(now) if job is None else not window.admits(job, now))
        )

    def _ask(self, shown: Bools, barred: Names, memory: object) -> Plan:
        """The policy's plan for these rows beside what was decided, with windows kept.

        No job is given what is kept from it: not by a move, and not in the place of a job that may
        stay there. Where the policy would, fewer are in its sight the next time: those that may use
        the same alone, and where none of these starts so, no job on what is kept from any job.
        """
        view, now = self._view, self._view.now
        for job in self._changes:
            shown[view.table.row(job)] = False
        in_force = frozenset(name for name in barred if self._windows[name].holds(now))
        for number, (kept, rows) in enumerate(self._tries(shown, barred, in_force)):
            mark = view.free.mark()
            take_away(view.free, [self._windows[name] for name in kept])
            part = view.restrict(rows, self._changes)
            plan = decide_among(self._inner, replace(part, memory=memory))
            view.free.rollback(mark)
            starts = any(to is not None for to in plan.changes.values())
            if (starts or number == 0) and not self._trespasses(plan):
                break
        else:
            return replace(plan, changes={})
        mark = view.free.mark()
        if not carry_out(view, plan):
            view.free.rollback(mark)
            return replace(plan, changes={})
        self._changes |= dict(plan.changes)
        for job in plan.changes:
            self.reasons.pop(job, None)
        return plan

    def _tries(self, shown: Bools, barred: Names, in_force: Names) -> Iterator[tuple[Names, Bools]]:
        """Windows whose devices are taken away, and the rows that are shown: fewer each time."""
        every = frozenset(self._windows)
        yield barred, shown & ~self._touching(in_force)
        yield barred, shown & ~self._touching(in_force) & self._alike(barred)
        yield every, shown & ~self._touching(every)

    def _alike(self, barred: Names) -> Bools:
        """Rows of jobs that may use equal devices."""
        return np.array([self._barred(job) == barred for job in self._view.table.jobs], dtype=bool)

    def _touching(self, names: Names) -> Bools:
        """Running rows with devices of these windows."""
        view = self._view
        mask = np.zeros(len(view.table), dtype=bool)
        for row in np.flatnonzero(view.running()).tolist():
            on = view.allocation(row)
            assert on is not None
            mask[row] = any(self._windows[name].touches(on, view.cluster) for name in names)
        return mask

    def _trespasses(self, plan: Plan) -> bool:
        view = self._view
        for job, to in plan.changes.items():
            if to is None:
                continue
            submitted = view.job(view.table.row(job))
            was = view.holds(job)
            for name in self._barred(submitted):
                window = self._windows[name]
                there = was is not None and window.touches(was, view.cluster)
                if window.touches(to, view.cluster) and not (there and window.when_done):
                    return True
        return False

    def _explain(self, rows: Bools, barred: Names) -> None:
        """Waiting jobs that would fit if nothing were kept from them."""
        view = self._view
        if not barred:
            return
        jobs = [view.job(row) for row in np.flatnonzero(rows).tolist()]
        waiting = [job for job in jobs if job.id not in self._changes]
        with kept_away(view.free, [self._windows[name] for name in barred]):
            beside = {job.id for job in waiting if self._has_room(job.demand)}
        for job in waiting:
            if job.id not in beside and self._has_room(job.demand):
                self.reasons[job.id] = self._why(view, job, barred)
            else:
                self.reasons.pop(job.id, None)

    def _has_room(self, demand: Demand) -> bool:
        """True if enough devices of a kind are idle, or one that is shared has room."""
        free = self._view.free
        return any(
            free.idle(kind) >= self._least(demand)
            or (demand.share < 1.0 and bool(free.with_room(kind, demand.share)))
            for kind in demand.kinds or free.kinds
            if kind in free.kinds
        )

    def _why(self, view: View, job: Job, barred: Names) -> Reason:
        demand = job.demand
        names = sorted(name for name in barred if self._is_near(view, name))
        numbers = {
            "asks": describe_demand(demand, self._least(demand), view.cluster.kinds),
            "kept": ", ".join(names),
        }
        return Reason(Blocker.RESERVED, numbers)

    def _is_near(self, view: View, name: str) -> bool:
        """True if a window has devices of machines that are there."""
        return any(node in view.cluster.index for node in self._windows[name].devices)

    def _least(self, demand: Demand) -> int:
        """The smallest size that a job can be given by this policy."""
        sized = Controls.COUNT in self._inner.about.controls
        return demand.min if sized else demand.gpus


def _remember(
    view: View,
    plan: Plan,
    why: Mapping[JobId, Reason],
    kept: ReserveMemory,
    groups: Mapping[str, object],
) -> Plan:
    return tell_news(view, plan, why, replace(kept, groups=groups))


def _key(barred: Names) -> str:
    """A group of jobs by the windows that are kept from them."""
    return "+".join(sorted(barred))


def _merge(first: Plan, more: Plan) -> Plan:
    wakes = [at for at in (first.wake_at, more.wake_at) if at is not None]
    return replace(
        first,
        rejected={**first.rejected, **more.rejected},
        reasons={**first.reasons, **more.reasons},
        blockers={**first.blockers, **more.blockers},
        facts={**first.facts, **more.facts},
        wake_at=min(wakes, default=None),
        promised=first.promised | more.promised,
    )
