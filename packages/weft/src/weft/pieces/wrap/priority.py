"""Classes of priority around any policy.

A higher class decides first, as if lower ones did not wait; what it leaves is offered to the
next. Opportunistic jobs hold devices only until a job of a higher class can start on them.
A policy that sets tiers itself, or must be shown all jobs, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from weft.core.model.job import Allocation, JobId, Tier
from weft.core.plan.about import Controls
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Objective, Preemption, declare
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.size.choice_reasons import gave_way, say_gave_way
from weft.pieces.wrap.sub_cluster import carry_out, decide_among
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper


@frozen
class Priority(Wrapper):
    """Let jobs of higher priority choose first, and take the places of opportunistic ones."""

    adds = declare(Objective.GUARANTEES, Preemption.STOPS)
    idles = "lower priorities wait behind a job of a higher one that does not fit"

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, class by class."""
        if Controls.TIER in self.about.controls or self.about.whole:
            return ask(self.inner, view)
        rank = view.table.column(TableColumns.PRIORITY)
        waiting = view.waiting()
        levels = np.unique(rank[waiting])[::-1]
        fillers = view.table.column(TableColumns.TIER) == FILLER
        filler = view.running() & fillers
        if not len(levels) or (len(levels) == 1 and not (filler & (rank < levels[0])).any()):
            return self._decide_class(view, partial(ask, self.inner))
        lower = waiting & (rank < levels[0])
        plan = self._decide_class(view.without(lower), partial(decide_among, self.inner))
        blocked = self._blocked(view, plan, waiting & ~lower)
        if blocked.any() and (more := self._instead(view, lower, filler & (rank < levels[0]))):
            still = self._blocked(view, more, waiting & ~lower)
            if (blocked & ~still).any():  # it is worth stopping a job
                plan, blocked = more, still
        return self._rest(view, plan, lower & fillers if blocked.any() else lower)

    def _blocked(self, view: View, plan: Plan, first: Bools) -> Bools:
        """The jobs that choose first and wait for what others hold; not for what is not there."""
        rows: Bools = first & ~find_started(view, plan)
        if rows.any():
            room = _usable(view)
            sized = Controls.COUNT in self.about.controls
            for row in np.flatnonzero(rows).tolist():
                demand = view.job(row).demand
                least = demand.min if sized else demand.gpus
                rows[row] = max(room.get(kind, 0) for kind in demand.kinds or (*room, "")) >= least
        return rows

    def _decide_class(self, view: View, decide: Callable[[View], Plan]) -> Plan:
        """The decision, unless it takes from a class to start a lower one."""
        mark = view.free.mark()
        plan = decide(view)
        rank, starts = view.table.column(TableColumns.PRIORITY), find_started(view, plan)
        if not starts.any():
            return plan
        higher = view.running() & (rank > rank[starts].min())
        if not (higher & _shrinks(view, plan)).any():
            return plan
        view.free.rollback(mark)
        instead = decide_among(self.inner, replace(view.without(higher), memory=None))
        return replace(plan, changes=instead.changes)

    def _instead(self, view: View, lower: Bools, filler: Bools) -> Plan | None:
        """The highest class where fillers give way to it; None if that starts no job."""
        if not filler.any():
            return None
        mark = view.free.mark()
        held: dict[JobId, Allocation] = {}
        for row in map(int, np.flatnonzero(filler)):
            on = view.allocation(row)
            assert on is not None
            held[view.job(row).id] = on
            view.free.give(on)
        plan = decide_among(self.inner, view.without(lower | filler))
        view.free.rollback(mark)
        if not find_started(view, plan).any():
            return None
        return give_way(view, plan, held)

    def _rest(self, view: View, plan: Plan, rows: Bools) -> Plan:
        """Offer what is left to these and to jobs that gave way, beside all that was decided."""
        mark = view.free.mark()
        shown = rows.copy()
        for job in plan.changes:
            shown[view.table.row(job)] = False
        stopped = _stops(view, plan) & (view.table.column(TableColumns.TIER) == FILLER)
        try:
            if not (shown | stopped).any() or not carry_out(view, plan):
                return plan
            after = view.released(np.flatnonzero(stopped)) if stopped.any() else view
            part = after.restrict(shown | stopped, plan.changes)
            more = decide_among(self, replace(part, memory=None))
        finally:
            view.free.rollback(mark)
        return plan.joined(more)


FILLER = float(Tier.OPPORTUNISTIC)


def _usable(view: View) -> dict[str, int]:
    """Devices by kind that are idle or that jobs hold, seen or not; those that are kept are not."""
    room = dict(zip(view.free.kinds, view.free.idle_by_kind(), strict=True))
    held = [(view.cluster.kind_of(on), on) for on in view.held().values()]
    held += [(kind, on) for _, kind, on in view.held_out_of_sight()]
    for kind, on in held:
        room[kind] = room.get(kind, 0) + on.gpus
    return room


def find_started(view: View, plan: Plan) -> Bools:
    """Waiting rows that a plan starts."""
    mask = np.zeros(len(view.table), dtype=bool)
    for job, to in plan.changes.items():
        mask[view.table.row(job)] = to is not None
    started: Bools = mask & view.waiting()
    return started


def _shrinks(view: View, plan: Plan) -> Bools:
    """Running rows that a plan stops or leaves with fewer devices."""
    mask = np.zeros(len(view.table), dtype=bool)
    for job, to in plan.changes.items():
        on = view.holds(job)
        mask[view.table.row(job)] = on is not None and (to is None or to.gpus < on.gpus)
    return mask


def _stops(view: View, plan: Plan) -> Bools:
    mask = np.zeros(len(view.table), dtype=bool)
    for job, to in plan.changes.items():
        mask[view.table.row(job)] = to is None
    stopped: Bools = mask & view.running()
    return stopped


def give_way(view: View, plan: Plan, held: dict[JobId, Allocation]) -> Plan | None:
    """The plan with a stop for every filler in whose place it starts a job."""
    mark = view.free.mark()
    changes = dict(plan.changes)
    for on in held.values():
        view.free.give(on)
    possible = carry_out(view, plan)
    for job, on in held.items():
        if view.free.fits(on):
            view.free.take(on)
        else:
            changes[job] = None
    view.free.rollback(mark)
    if not possible:
        return None
    rows = {view.table.row(job): to for job, to in changes.items()}
    stops = {row: to for row, to in rows.items() if view.job(row).id in held and to is None}
    blockers = gave_way(view, stops)  # who is stopped by the inner policy is told so by it
    texts = {job: text for job, text in say_gave_way(view, rows).items() if job in blockers}
    reasons, blockers = {**plan.reasons, **texts}, {**plan.blockers, **blockers}
    return replace(plan, changes=changes, reasons=reasons, blockers=blockers)
