"""Backfilling with a reservation: jobs that cannot be stopped do not keep a larger one waiting.

A job that may not be stopped holds its devices to its end. Where small ones of that kind keep
coming, the devices that a large one needs are never free together, whatever the policy thinks of
it. As in EASY (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995) the job that came first among
those that wait for long gets a reservation: the devices that the fewest such jobs are on. Others of
the kind that came later start there only if they are predicted to end before those; and not at all
once it has waited so long that predictions must have been wrong. So reserved devices empty,
whatever is predicted. Jobs that can be stopped are not in the way, and use it meanwhile.

However long a job has waited, one that came later and cannot be stopped starts elsewhere than on
the devices that the first could have soonest, if there is such a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from weft.core.errors import bad_values
from weft.core.model.job import EXCLUSIVE, Allocation, Job, JobId, Slice, name_of
from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.reasons import Blocker, Reason, describe_demand
from weft.core.plan.taxonomy import Objective, declare
from weft.core.plan.view import View
from weft.core.state.releasing import devices_of
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.pieces.wrap.reason_news import tell_news
from weft.pieces.wrap.reservations import (
    BackfillReservation,
    Device,
    find_busy_seconds,
    quantile_left,
    reserve_for,
)
from weft.pieces.wrap.sub_cluster import carry_out, decide_among
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper, WrapperMemory

FIRST = 4  # jobs that wait whose devices are looked for
LONG_S = 1e9  # until a device is free whose job is not known to end
SOONEST = 0.5  # quantile of the time left at which a device counts as free


def start_out_of_the_way(view: View, plan: Plan, about: About) -> Plan:
    """The plan with jobs that will not be stopped on devices for which no earlier job waits.

    Such a job holds its place to its end. A start stays where it is if there is no other place for
    it, so no job waits longer for this.
    """
    if about.whole or about.ties is Ties.NONE:
        return plan
    stops = view.preemptible() & bool(about.taxonomy.preemption)
    starts = [row for row in _find_starts(view, plan) if not stops[row]]
    if not starts or not (blocked := _find_blocked(view, plan, max(starts))):
        return plan
    busy_s = {
        device: min(seconds, LONG_S) for device, seconds in find_busy_seconds(view, SOONEST).items()
    }
    awaited = {row: reserve_for(view, row, busy_s) for row in blocked}
    changes = dict(plan.changes)
    for row in starts:
        job = view.job(row)
        before = [kept for first, kept in awaited.items() if kept and _is_before(view, first, row)]
        devices = frozenset[Device]().union(*(kept.devices for kept in before))
        on = changes[job.id]
        assert on is not None
        if not devices.isdisjoint(devices_of(on)):
            changes[job.id] = _elsewhere(view, changes, job, devices) or on
    return plan if changes == plan.changes else replace(plan, changes=changes)


def start_elsewhere(view: View, plan: Plan, about: About) -> Plan:
    """The plan with jobs that failed at their start on other nodes, where there is room for them.

    Whether the job or the machine was at fault shows when it is tried in another place.
    """
    failed_on = view.knowledge.failed_on
    if not failed_on or about.whole or about.ties is Ties.NONE:
        return plan
    changes = dict(plan.changes)
    for row in _find_starts(view, plan):
        job = view.job(row)
        on, bad = changes[job.id], failed_on.get(job.id, frozenset())
        if on is not None and not bad.isdisjoint(part.node for part in on.slices):
            nodes = (node for node in view.cluster.nodes if node.id in bad)
            devices = frozenset((node.id, gpu) for node in nodes for gpu in range(node.gpus))
            changes[job.id] = _elsewhere(view, changes, job, devices) or on
    return plan if changes == plan.changes else replace(plan, changes=changes)


def _find_starts(view: View, plan: Plan) -> list[int]:
    """Waiting rows that get whole devices for themselves, in order of submission."""
    rows = [
        view.table.row(job)
        for job, to in plan.changes.items()
        if to is not None and to.sharing == EXCLUSIVE and view.holds(job) is None
    ]
    return sorted(rows)


def _find_blocked(view: View, plan: Plan, last: int) -> list[int]:
    """The first rows that wait for whole devices, before `last`, and that the plan starts not."""
    waits: Bools = view.waiting() & (view.table.need >= 1.0)
    waits[last:] = False
    rows = np.flatnonzero(waits).tolist()
    return [row for row in rows if plan.changes.get(view.job(row).id) is None][:FIRST]


def _is_before(view: View, first: int, row: int) -> bool:
    """True if a row that waits came before another and is no less important."""
    earlier, later = view.job(first), view.job(row)
    important = earlier.priority >= later.priority and earlier.tier <= later.tier
    return first < row and important


def _elsewhere(
    view: View, changes: dict[JobId, Allocation | None], job: Job, devices: frozenset[Device]
) -> Allocation | None:
    """Another place of the same size, beside all else that is decided; None if there is none."""
    mark = view.free.mark()
    others = {name: to for name, to in changes.items() if name != job.id}
    on = changes[job.id]
    assert on is not None
    try:
        if not carry_out(view, Plan(others)):
            return None
        _take_idle(view, devices)
        size = replace(job.demand, gpus=on.gpus, min=on.gpus, max=on.gpus)
        place = fewest_nodes(replace(job, demand=size), view.free)
        fits = place is not None and view.free.fits(place)
    finally:
        view.free.rollback(mark)
    return replace(on, slices=place.slices) if place is not None and fits else None


def _take_idle(view: View, devices: Iterable[Device]) -> None:
    """Take those of these devices that are idle, without any of the host."""
    free = view.free
    for node, gpu in devices:
        if free.idle_mask(view.cluster.index[node]) >> gpu & 1:
            free.take(Allocation((Slice(node, (gpu,)),)))


TRIES = 4
TRUSTED = 6.0  # times the patience: after that no job, however short, starts on what is kept


@frozen
class EasyMemory(WrapperMemory):
    """The inner policy's memory, and the reasons of jobs that devices are kept from."""


@frozen
class Easy(Wrapper):
    """Keep devices for the first job that cannot be stopped and has waited `patience_s` seconds.

    They are taken to be free when the time left of their jobs has reached its quantile `reserve`;
    another job may start there if its quantile `backfill` is before that: 0.8 is careful, 0.5 bold.
    """

    patience_s: float = 600.0
    reserve: float = 0.5
    backfill: float = 0.8

    adds = declare(Objective.GUARANTEES)
    idles = "GPUs are kept for a job that has waited long"

    def __post_init__(self) -> None:
        if self.patience_s < 0.0:
            raise bad_values("easy", self, "patience_s", "it is 0 or more")
        if not (0.0 < self.reserve < 1.0 and 0.0 < self.backfill < 1.0):
            raise bad_values("easy", self, "reserve backfill", "both are quantiles between 0 and 1")

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, without jobs that would be in the way for long."""
        late = view.waiting() & ~view.preemptible() & (view.waited() >= self.patience_s)
        late &= (view.table.gpus >= 1.0) & (view.table.need >= view.table.gpus)
        memory = recall(view, EasyMemory)
        view = replace(view, memory=memory.inner)
        mark = view.free.mark()
        plan = ask(self.inner, view)
        view.free.rollback(mark)
        why: dict[JobId, Reason] = {}
        if late.any() and (kept := self._reserve(view, plan, late)) is not None:
            plan, hidden = self._keep_free(view, plan, kept)
            why = _explain(view, plan, kept, hidden)
        plan = start_out_of_the_way(view, plan, self.about)
        return tell_news(view, start_elsewhere(view, plan, self.about), why, memory)

    def _keep_free(self, view: View, plan: Plan, kept: BackfillReservation) -> tuple[Plan, Bools]:
        """The plan without the jobs that would be in the way for long, and which these are."""
        hidden = np.zeros(len(view.table), dtype=bool)
        for _ in range(TRIES):
            in_the_way = _find_in_the_way(view, plan, kept, self.backfill)
            if not in_the_way.any():
                return plan, hidden
            hidden |= in_the_way
            plan = decide_among(self.inner, view.without(hidden))
        hidden |= _find_behind(view, kept)
        return decide_among(self.inner, view.without(hidden)), hidden

    def _reserve(self, view: View, plan: Plan, late: Bools) -> BackfillReservation | None:
        """For the first of these that the plan does not start and that preemption cannot start.

        Where only jobs that can be stopped are in its way, whether they are is for the policy to
        say. Devices kept for it would be idle until then; they are kept once it waits far too long.
        """
        waiting = np.flatnonzero(late).tolist()
        rows = [row for row in waiting if not plan.changes.get(view.job(row).id)]
        busy_s = find_busy_seconds(view, self.reserve) if rows else {}
        for row in rows[:TRIES]:
            trusted = view.waited()[row] < TRUSTED * self.patience_s
            kept = reserve_for(view, row, busy_s, trusted=trusted)
            if kept is None or kept.within_s > 0.0 or not trusted:
                return kept
            if all(device not in busy_s for device in kept.devices):
                return kept
        return None


def _explain(
    view: View, plan: Plan, kept: BackfillReservation, hidden: Bools
) -> dict[JobId, Reason]:
    """For whom devices are kept from these rows, by name only to jobs of the same tenant."""
    first, kinds, why = view.job(kept.row), view.cluster.kinds, dict[JobId, Reason]()
    for row in np.flatnonzero(hidden).tolist():
        if (job := view.job(row)).id not in plan.changes:
            mine = job.tenant == first.tenant
            numbers = {
                "asks": describe_demand(job.demand, job.demand.min, kinds),
                "job": name_of(first) if mine else "a job of another tenant",
                "more": describe_demand(first.demand, first.demand.min, kinds),
            }
            why[job.id] = Reason(Blocker.KEPT, numbers)
    return why


def _find_in_the_way(view: View, plan: Plan, kept: BackfillReservation, p: float) -> Bools:
    """Waiting rows that the plan starts on kept devices, and that are not known to end in time.

    So are those that ask for the same as one of them and still wait: they would start there next.
    """
    behind, started = _find_behind(view, kept), dict(_started(view, plan))
    there = np.zeros(len(view.table), dtype=bool)
    there[[row for row, on in started.items() if kept.devices & on]] = True
    there &= behind & ~(quantile_left(view, there & behind, p) <= kept.within_s)
    asked = {view.job(row).demand for row in np.flatnonzero(there).tolist()}
    if not asked:
        return there
    behind[[*started]] = False
    behind &= [job.demand in asked for job in view.table.jobs]
    return there | behind & ~(quantile_left(view, behind, p) <= kept.within_s)


def _started(view: View, plan: Plan) -> Iterator[tuple[int, set[tuple[str, int]]]]:
    for job, to in plan.changes.items():
        row = view.table.row(job)
        if to is not None and view.allocation(row) is None:
            yield row, {*devices_of(to)}


def _find_behind(view: View, kept: BackfillReservation) -> Bools:
    """Waiting rows that came later, cannot be stopped, and are no more important."""
    first = view.job(kept.row)
    meant = [job.priority <= first.priority and job.tier >= first.tier for job in view.table.jobs]
    mask: Bools = view.waiting() & ~view.preemptible() & np.array(meant, dtype=bool)
    mask[: kept.row + 1] = False
    return mask
