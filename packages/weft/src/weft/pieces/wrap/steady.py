"""No thrash: running jobs are changed only after a while, and only where that pays.

A change of a running job's devices is a restart, or a short pause for a job that makes it live.
Elastic policies see a better division at every event; here a job that was just started or changed
is left alone for a time, and one that would only grow or move must gain more than the change costs
it. The policy does not see jobs that are left alone while it decides again, so that what it then
promises hangs together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId
from weft.core.plan.about import Controls
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.reasons import Blocker, Reason, describe_demand
from weft.core.plan.taxonomy import Objective, declare
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.reason_news import tell_news
from weft.pieces.wrap.restart_costs import live_seconds, seconds_left, speed_ratio
from weft.pieces.wrap.sub_cluster import decide_among, devices_of
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper, WrapperMemory

TRIES = 8
LIVE_TIMES = 10.0  # at most a tenth of the time is spent on live changes
SLACK_S = 1e-6


@frozen
class SteadyMemory(WrapperMemory):
    """The inner policy's memory; of each running job, its attempt and when that began."""

    since: Mapping[JobId, tuple[int, float]] = field(default_factory=dict)


@frozen
class RecentlyChanged:
    """Jobs that started or changed too lately to be stopped, or to be changed as they train.

    `live_s` are seconds that a live change takes each row.
    """

    stop: Bools
    live: Bools
    live_s: Floats


@frozen
class SteadyWrapper(Wrapper):
    """Change a running job at most every `min_run_s` seconds, and only for a gain.

    A job that grows or moves must save `margin` times what the change costs in the time that
    it still runs: what is predicted, else as long as it has run. Jobs may still be
    made smaller or stopped for others, after `min_run_s`; a policy that lets them take turns
    may suspend them at any time. Where a change is made live, it is ten times what that takes if
    that is less than `min_run_s`. Policies that do not choose sizes are left alone.
    """

    min_run_s: float = 60.0
    margin: float = 2.0

    adds = declare(Objective.THROUGHPUT)

    def __post_init__(self) -> None:
        if self.min_run_s < 0.0 or self.margin < 0.0:
            raise InvalidConfig(
                f"steady: min_run_s {self.min_run_s:g}, margin {self.margin:g}",
                hint="neither is below 0",
            )

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, with jobs left alone that were changed too lately."""
        about = self.about
        kept = recall(view, SteadyMemory)
        if Controls.COUNT not in about.controls:
            plan = ask(self.inner, replace(view, memory=kept.inner))
            return replace(plan, memory=SteadyMemory(plan.memory))
        since = _seen(view, kept.since)
        view = replace(view, memory=kept.inner)
        age = _ages(view, since)
        live_s = live_seconds(view)
        calm = np.minimum(self.min_run_s, LIVE_TIMES * live_s)
        fresh = RecentlyChanged(age < self.min_run_s - SLACK_S, age < calm - SLACK_S, live_s)
        plan, wished = self._settle(view, fresh)
        waits = fresh.stop & view.running()
        wakes = [at for at in (plan.wake_at, wished.wake_at) if at is not None]
        if waits.any() and (view.waiting().any() or plan is not wished):
            until = np.where(fresh.live, calm, self.min_run_s)
            wakes.append(view.now + float((until - age)[waits].min()))
        plan = replace(plan, wake_at=min(wakes, default=None))
        return self._wrapped(view, plan, self._held_back(view, plan, wished, fresh), since, kept)

    def _settle(self, view: View, fresh: RecentlyChanged) -> tuple[Plan, Plan]:
        """Ask until no job is touched that is to be left alone; the plan, and the first one."""
        mark = view.free.mark()
        plan = first = ask(self.inner, view)
        view.free.rollback(mark)
        alone = np.zeros(len(view.table), dtype=bool)
        for _ in range(TRIES):
            touched = self._too_soon(view, plan, fresh)
            if not touched.any():
                return plan, first
            alone |= touched
            plan = decide_among(self.inner, view.without(alone))
        return decide_among(self.inner, view.without(view.running())), first

    def _too_soon(self, view: View, plan: Plan, fresh: RecentlyChanged) -> Bools:
        """Running rows that the plan changes although they are fresh, or gain too little."""
        mask, about = np.zeros(len(view.table), dtype=bool), self.about
        larger = []
        for job, to in plan.changes.items():
            row = view.table.row(job)
            was = view.allocation(row)
            if was is None or (to is not None and was.stays(to)):
                continue
            if to is None:  # where jobs take turns, its turn is over
                mask[row] = fresh.stop[row] and about.resume_s is None
            elif fresh.live[row]:
                mask[row] = True
            elif to.gpus >= was.gpus:
                larger.append((row, was, to))
        if larger:
            left_s, cost_s = seconds_left(view), np.minimum(view.restart_seconds(), fresh.live_s)
        for row, was, to in larger:
            saved = left_s[row] * (1.0 - speed_ratio(view, row, was, to, pooled=about.pools))
            mask[row] = not saved > self.margin * cost_s[row]
        return mask

    def _held_back(
        self, view: View, plan: Plan, wished: Plan, fresh: RecentlyChanged
    ) -> dict[JobId, Reason]:
        """Waiting jobs that would start on devices of a job that has to be left alone."""
        reasons = {}
        rows = np.flatnonzero(fresh.stop & view.running()).tolist()
        held = devices_of(on for row in rows if (on := view.allocation(row)) is not None)
        for name, to in wished.changes.items():
            if to is None or view.holds(name) is not None or plan.changes.get(name) is not None:
                continue
            if held.isdisjoint(devices_of([to])):
                continue
            demand = view.job(view.table.row(name)).demand
            asks = describe_demand(demand, demand.min, view.cluster.kinds)
            reasons[name] = Reason(Blocker.STEADY, {"asks": asks, "seconds": self.min_run_s})
        return reasons

    def _wrapped(
        self,
        view: View,
        plan: Plan,
        why: Mapping[JobId, Reason],
        since: Mapping[JobId, tuple[int, float]],
        kept: SteadyMemory,
    ) -> Plan:
        return tell_news(view, plan, why, replace(kept, since=_begun(view, plan, since)))


def _seen(view: View, before: Mapping[JobId, tuple[int, float]]) -> dict[JobId, tuple[int, float]]:
    """The start of each running attempt; of one that someone else began, its last change."""
    attempts = view.table.column(TableColumns.ATTEMPT)
    runs = view.table.column(TableColumns.RAN_RATE) > 0.0
    began = np.where(runs, view.table.column(TableColumns.RAN_SINCE), view.now)
    since = {}
    for row in map(int, np.flatnonzero(view.running())):
        job, attempt = view.job(row).id, int(attempts[row])
        known = before.get(job)
        own = known is not None and known[0] == attempt
        since[job] = known if known and own else (attempt, float(began[row]))
    return since


def _begun(
    view: View, plan: Plan, since: Mapping[JobId, tuple[int, float]]
) -> dict[JobId, tuple[int, float]]:
    """The starts once the plan is carried out: what it starts or restarts begins now."""
    after = dict(since)
    attempts = view.table.column(TableColumns.ATTEMPT)
    for job, to in plan.changes.items():
        row = view.table.row(job)
        was = view.allocation(row)
        if to is None:
            after.pop(job, None)
        elif was is None or not was.stays(to):
            after[job] = (int(attempts[row]) + 1, view.now)
    return after


def _ages(view: View, since: Mapping[JobId, tuple[int, float]]) -> Floats:
    age = np.zeros(len(view.table))
    for job, (_, at) in since.items():
        age[view.table.row(job)] = view.now - at
    return age
