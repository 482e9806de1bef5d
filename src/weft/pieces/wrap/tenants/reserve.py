"""Reservations, maintenance and drained devices, around any policy.

What is kept for others is taken in the ledger before the policy is asked, as if somebody held it;
jobs that may use it are asked about first. Who is in the way when a window begins is stopped,
unless it may run to its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker, Reason, asks_for
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.pieces.wrap.fits import carry_out
from weft.pieces.wrap.reason_news import recall, tell_news
from weft.pieces.wrap.sub_cluster import decide_among
from weft.pieces.wrap.tenants.windows import Window, read_window
from weft.stack.ask_policy import ask

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep devices for tenants or for maintenance; `windows` are written by name."""

    inner: Policy = field(metadata={"settable": False})
    windows: Mapping[str, str] = field(default_factory=dict)

    adds = tax.Taxonomy(objective=tax.Objective.GUARANTEES, preemption=tax.Preemption.STOPS)

    def __post_init__(self) -> None:
        self._read()

    @property
    def about(self) -> About:
        """The inner policy's; which nodes it starts jobs on matters while some are kept."""
        inner = self.inner.about
        return replace(inner, ties=Ties.NONE) if self.windows else inner

    def _read(self) -> tuple[Window, ...]:
        return tuple(read_window(name, text) for name, text in self.windows.items())

    def decide(self, view: View) -> Plan:
        """The inner policy's decision beside what is kept."""
        known = recall(view)
        windows = [one for one in self._read() if view.now < one.end]
        seen = replace(view, memory=known.inner)
        if not windows:
            plan = ask(self.inner, seen)
            return tell_news(view, plan, {}, known)
        mark = view.free.mark()
        try:
            turn = _Turn(self.inner, seen, windows)
            plan = turn.whole()
        finally:
            view.free.rollback(mark)
        edges = [at for one in windows for at in (one.start, one.end) if view.now < at < inf]
        wakes = [at for at in (plan.wake_at, *edges) if at is not None]
        plan = replace(plan, wake_at=min(wakes, default=None))
        return tell_news(view, plan, turn.reasons, known)


class _Turn:
    """One decision: who must leave, then who may start where."""

    def __init__(self, inner: Policy, view: View, windows: list[Window]) -> None:
        self._inner, self._view = inner, view
        self._windows = {one.name: one for one in windows}
        self._changes: dict[JobId, Allocation | None] = {}
        self.reasons: dict[JobId, Reason] = {}

    def whole(self) -> Plan:
        """Those who may use most first, each beside what is decided by then."""
        view = self._view
        plan = Plan(memory=view.memory)
        self._clear()
        for number, (barred, rows) in enumerate(self._groups()):
            first = number == 0
            shown = rows | view.running() if first else rows
            for job in self._changes:
                shown[view.table.row(job)] = False
            part = view.restrict(shown)
            asked = self._ask(part if first else replace(part, memory=None), barred)
            self._changes |= dict(asked.changes)
            plan = asked if first else _merge(plan, asked)
            self._explain(rows, barred)
        return replace(plan, changes=self._changes)

    def _clear(self) -> None:
        """Stop who is where it must not be any more."""
        view = self._view
        for row in map(int, np.flatnonzero(view.running())):
            job, on = view.job(row), view.allocation(row)
            assert on is not None
            for one in self._windows.values():
                if one.when_done or not one.holds(view.now) or one.admits(job, view.now):
                    continue
                firm = one.tenant and not job.preemptible
                if one.touches(on, view.cluster) and not firm:
                    view.free.give(on)
                    self._changes[job.id] = None
                    self.reasons[job.id] = self._why(job, frozenset({one.name}))
                    break

    def _groups(self) -> Iterator[tuple[Names, Bools]]:
        """Waiting rows by the windows that they may not use; the freest first."""
        view = self._view
        waiting = view.waiting()
        groups: dict[Names, list[int]] = defaultdict(list)
        for row in map(int, np.flatnonzero(waiting)):
            groups[self._barred(view.job(row))].append(row)
        if not groups:
            groups[self._barred(None)] = []
        for barred, rows in sorted(groups.items(), key=lambda one: (len(one[0]), sorted(one[0]))):
            mask = np.zeros(len(view.table), dtype=bool)
            mask[rows] = True
            yield barred, mask

    def _barred(self, job: Job | None) -> Names:
        now = self._view.now
        return frozenset(
            name
            for name, one in self._windows.items()
            if (one.holds(now) if job is None else not one.admits(job, now))
        )

    def _ask(self, part: View, barred: Names) -> Plan:
        """What the policy says with these windows kept; running jobs are not moved into any."""
        view = self._view
        mark = view.free.mark()
        self._keep(barred)
        plan = decide_among(self._inner, part)
        if self._trespasses(plan):
            self._keep(frozenset(self._windows))
            plan = decide_among(self._inner, part)
        view.free.rollback(mark)
        mark = view.free.mark()
        if not carry_out(view, plan):
            view.free.rollback(mark)
            return replace(plan, changes={})
        return plan

    def _keep(self, names: Names) -> None:
        """Take what is idle of these windows' devices, so that it is not there."""
        free, cluster = self._view.free, self._view.cluster
        for i, node in enumerate(cluster.nodes):
            mask = 0
            for name in names:
                mask |= self._windows[name].mask(node.id, node.gpus)
            mask &= free.idle_mask(i)
            if mask:
                gpus = tuple(gpu for gpu in range(node.gpus) if mask >> gpu & 1)
                free.take(Allocation((Slice(node.id, gpus),)))

    def _trespasses(self, plan: Plan) -> bool:
        view = self._view
        for job, to in plan.changes.items():
            if to is None:
                continue
            one = view.job(view.table.row(job))
            was = view.holds(job)
            for name in self._barred(one):
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
        for row in map(int, np.flatnonzero(rows)):
            job = view.job(row)
            if job.id in self._changes:
                continue
            demand = job.demand
            kinds = demand.kinds or view.cluster.kinds
            room = {kind: self._kept(kind, barred) for kind in kinds if kind in view.free.kinds}
            idle = {kind: view.free.idle(kind) for kind in room}
            if any(idle[kind] >= demand.min > idle[kind] - room[kind] for kind in room):
                self.reasons[job.id] = self._why(job, barred)

    def _kept(self, kind: str, barred: Names) -> int:
        free, cluster = self._view.free, self._view.cluster
        count = 0
        for i, node in enumerate(cluster.nodes):
            if node.kind == kind:
                mask = 0
                for name in barred:
                    mask |= self._windows[name].mask(node.id, node.gpus)
                count += (mask & free.idle_mask(i)).bit_count()
        return count

    def _why(self, job: Job, barred: Names) -> Reason:
        demand = job.demand
        numbers = {
            "asks": asks_for(demand.min, demand.kinds, demand.share, demand.nodes),
            "kept": ", ".join(sorted(barred)),
        }
        return Reason(Blocker.RESERVED, numbers)


def _merge(first: Plan, more: Plan) -> Plan:
    wakes = [at for at in (first.wake_at, more.wake_at) if at is not None]
    return replace(
        first,
        rejected={**first.rejected, **more.rejected},
        reasons={**first.reasons, **more.reasons},
        blockers={**first.blockers, **more.blockers},
        wake_at=min(wakes, default=None),
    )
