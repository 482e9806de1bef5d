"""Spot GPUs with a promised hour, around any policy.

Paper       Duan et al., "GFS: A Preemption-aware Scheduling Framework for GPU Clusters with
            Predictive Spot Instance Management", ASPLOS 2026.
Objective   guaranteed jobs never wait for spot jobs, and a spot job that starts runs for an hour
            without a stop with the promised probability.
Needs       what the policy inside needs; which tenants held how many GPUs at which hour is
            remembered.
Controls    which spot jobs may start, and which give way; the inner policy decides everything else.
Cost        up to five decisions of the policy, and O(nodes + spot jobs) for each guaranteed job
            that waits; a forecast of every tenant and kind each `interval` seconds.
Deviations  demand is forecast by the mean and deviation of the same hour of the week instead of a
            trained network, and never below what is in use. The factor on the quota grows by 1.5 -
            e/(1 - promise), where the authors' is negative or divides by 0, and changes at most
            once an hour, so that one eviction is not punished again and again. Gangs of several
            nodes count in full, and may have victims on any nodes. The policy inside places jobs;
            single-node spot jobs go to the node with the fewest free GPUs, those with fewer
            evictions first, if the policy allows other nodes. Opportunistic jobs without a promise
            (priority -1 or less) come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weft.core.errors import InvalidConfig, bad_values
from weft.core.model.job import EXCLUSIVE, Allocation, JobId, Tier
from weft.core.plan.about import About, Controls, Ties, may_idle
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker, Reason, describe_demand
from weft.core.plan.taxonomy import Objective, Preemption, declare
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.priority import Priority, find_started, give_way
from weft.pieces.wrap.promise import keep_promises
from weft.pieces.wrap.reason_news import tell_news
from weft.pieces.wrap.sub_cluster import carry_out, decide_among
from weft.pieces.wrap.tenants.quota import NarrowedView
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper
from weft_papers.gfs.history import DAY_S, GfsMemory
from weft_papers.gfs.quota import FORECASTERS, HOUR_S, adjust_eta, spot_quota
from weft_papers.gfs.room import SLACK, GuaranteedTrial
from weft_papers.gfs.victims import eviction_score

TRIES = 4
WINDOW_S = 4.0 * HOUR_S  # of hours that the factor follows
IDLES = "GPUs that guaranteed jobs are expected to need are kept from spot jobs"


@frozen
class Gfs(Wrapper):
    """Let spot jobs use GPUs that guaranteed jobs are not expected to need, and give way to them.

    Spot jobs are opportunistic ones above the lowest priority. Each is promised `hours` hours
    without a stop with probability `promise`. `forecast` is `week` (the same hour in weeks before)
    or `day` (the last 24 hours); the quota is updated every `interval` seconds.
    """

    promise: float = 0.9
    hours: int = 1
    forecast: str = "week"
    interval: float = 300.0

    adds = declare(Objective.GUARANTEES | Objective.UTILIZATION, Preemption.STOPS)

    def __post_init__(self) -> None:
        if not (0.5 <= self.promise < 1.0 and 1 <= self.hours <= 24 and self.interval > 0.0):
            raise bad_values(
                "gfs",
                self,
                "promise hours interval",
                "promise is from 0.5 to below 1, hours from 1 to 24, interval above 0",
            )
        if self.forecast not in FORECASTERS:
            raise InvalidConfig(
                f"gfs: forecast={self.forecast!r}", hint=f"one of {', '.join(FORECASTERS)}"
            )

    @property
    def about(self) -> About:
        """The inner policy's; it must be shown all jobs."""
        about = may_idle(self.inner.about, IDLES)
        return replace(about, whole=True, starves=about.starves or "guaranteed jobs without end")

    def decide(self, view: View) -> Plan:
        """Guaranteed jobs first, in the place of spot jobs if need be; then spot jobs."""
        known = view.memory if isinstance(view.memory, GfsMemory) else GfsMemory(view.memory)
        inner = replace(view, memory=known.inner)
        spot = np.array([job.spot for job in view.table.jobs], dtype=bool)
        own = Controls.TIER in self.inner.about.controls or self.inner.about.whole
        if own or not (spot.any() or known.runs):
            plan = ask(keep_promises(self.inner if own else Priority(self.inner), view), inner)
            kept = replace(known.with_decision(view, plan, set()), inner=plan.memory)
            return replace(plan, memory=kept, numbers={**plan.numbers, **kept.numbers()})
        turn = GfsDecision(self, inner, known, spot)
        mark = view.free.mark()
        try:
            plan = turn.place_spot_jobs(turn.start_spot(turn.start_guaranteed()))
        finally:
            view.free.rollback(mark)
        evicted = {job for job, to in plan.changes.items() if to is None} & known.runs.keys()
        kept = turn.known.with_decision(view, plan, evicted)
        plan = tell_news(view, plan, turn.reasons, kept)
        wakes = [] if plan.wake_at is None else [plan.wake_at]
        if (view.waiting() & spot).any():
            wakes.append((view.now // self.interval + 1.0) * self.interval)
        return replace(
            plan,
            wake_at=min(wakes, default=None),
            numbers={**plan.numbers, **kept.numbers()},
            reasons={**plan.reasons, **self._promises(view, kept)},
        )

    def _promises(self, view: View, kept: GfsMemory) -> dict[JobId, str]:
        """Describe what spot jobs of the request are promised, and how well promises were kept."""
        rows = [view.table.find(job) for job in view.asked]
        jobs = [view.job(row) for row in rows if row is not None and view.job(row).spot]
        hours = kept.total.kept + kept.total.broken
        score = f"; {kept.total.kept} of {hours} such hours were kept" if hours else ""
        span = f"{self.hours} h" if self.hours > 1 else "an hour"
        text = f"spot: {span} without a stop with probability {self.promise:g}{score}"
        return dict.fromkeys((job.id for job in jobs), text)


class GfsDecision:
    """One decision: which jobs start, which give way, and why others wait."""

    def __init__(self, rules: Gfs, view: View, known: GfsMemory, spot: Bools) -> None:
        self._rules, self._view, self._spot = rules, view, spot
        # What stands around other policies leaves this one alone, which must be shown all jobs.
        self._policy = Priority(rules.inner)
        self._firm = keep_promises(self._policy, view)
        filler = (view.table.column(TableColumns.TIER) == float(Tier.OPPORTUNISTIC)) & ~spot
        self._late: Bools = spot | (filler & view.preemptible() & view.waiting())
        self.known = self._renew_quotas(known)
        self.reasons: dict[JobId, Reason] = {}

    def start_guaranteed(self) -> Plan:
        """Ask the policy for jobs that are not spot, and make room for them among spot jobs."""
        view = self._view
        plan = self._ask({})
        running = view.running() & self._spot
        blocked = view.waiting() & ~self._late & ~find_started(view, plan)
        if not (blocked.any() and running.any()):
            return plan
        victims = self._victims(plan, blocked)
        if not victims:
            return plan
        mark = view.free.mark()
        for on in victims.values():
            view.free.give(on)
        more = self._ask(dict.fromkeys(victims, None))
        view.free.rollback(mark)
        if not (find_started(view, more) & blocked).any():
            return plan
        return give_way(view, more, victims) or plan

    def start_spot(self, plan: Plan) -> Plan:
        """With spot jobs within the quota, and jobs without any promise on what is left."""
        view = self._view
        mark = view.free.mark()
        try:
            if not carry_out(view, plan):
                return plan
            more = self._within(plan, self._rooms(plan))
        finally:
            view.free.rollback(mark)
        return plan.joined(more)

    def place_spot_jobs(self, plan: Plan) -> Plan:
        """With spot jobs that start on a node of their own choice where the policy does not mind.

        The one with the fewest free GPUs, then most spot jobs, then fewest evictions of late.
        """
        view, changes = self._view, dict(plan.changes)
        if self._rules.inner.about.ties is not Ties.NODES or not carry_out(view, plan):
            return plan
        for row in np.flatnonzero(find_started(view, plan) & self._spot).tolist():
            job = view.job(row)
            to = changes[job.id]
            assert to is not None
            if len(to.slices) == 1 and to.sharing == EXCLUSIVE and job.demand.share == 1.0:
                view.free.give(to)
                changes[job.id] = there = self._best(to)
                view.free.take(there)
        return replace(plan, changes=changes)

    def _ask(self, decided: Mapping[JobId, Allocation | None]) -> Plan:
        return decide_among(self._firm, self._view.without(self._late, decided))

    def _renew_quotas(self, known: GfsMemory) -> GfsMemory:
        """With quotas of now, where those before are too old."""
        view, rules = self._view, self._rules
        kinds = view.cluster.gpus_by_kind
        if view.now < known.looked + rules.interval and known.quota.keys() == kinds.keys():
            return known
        known = known.with_decision(view, Plan(), set()) if not known.usage else known
        eta, since = dict(known.eta), dict(known.since)
        quota: dict[str, float] = {}
        for kind in kinds:
            before = eta.get(kind, 1.0)
            if view.now >= since.setdefault(kind, view.now) + HOUR_S:
                eta[kind] = self._adjusted(replace(known, since=since), kind, before)
                since[kind] = view.now if eta[kind] != before else since[kind]
            forecaster = FORECASTERS[rules.forecast]
            free = known.free_in(rules.hours, kind, view, forecaster, rules.promise)
            quota[kind] = spot_quota(free, eta.get(kind, 1.0))
        return replace(known, eta=eta, since=since, quota=quota, looked=view.now)

    def _adjusted(self, known: GfsMemory, kind: str, eta: float) -> float:
        view = self._view
        since = max(known.since[kind], view.now - WINDOW_S)
        record = known.record(kind, since)
        hours = record.broken + record.kept
        waits = view.waiting() & self._spot
        first = view.table.submitted[waits].min(initial=view.now)
        return adjust_eta(
            eta,
            record.broken / hours if hours else 0.0,
            self._rules.promise,
            waits_long=bool(view.now - first > HOUR_S),
        )

    def _rooms(self, plan: Plan) -> dict[str, float]:
        """Return the GPUs of each kind that spot jobs may still take."""
        rooms, view = dict(self.known.quota), self._view
        for job, on in view.after(plan).items():
            if self._spot[view.table.row(job)]:
                rooms[view.cluster.kind_of(on)] -= on.counted_gpus
        return rooms

    def _within(self, plan: Plan, rooms: Mapping[str, float]) -> Plan:
        """Add spot jobs to the plan within their rooms; those without room get a reason."""
        view = self._view
        shape = NarrowedView(~(self._late & view.waiting()))
        filler = view.table.column(TableColumns.TIER) == float(Tier.OPPORTUNISTIC)
        shape.hidden[filler & ~self._spot & view.preemptible()] = False
        shape.hidden[[view.table.row(job) for job in plan.changes]] = True
        for row in np.flatnonzero(self._spot & ~shape.hidden).tolist():
            self._narrow(shape, row, rooms)
        for _ in range(TRIES):
            if shape.hidden.all():
                break
            more = decide_among(self._policy, shape.view(view, None, plan))
            refused = self._refuse(shape, more, rooms)
            if not refused:
                return more
        return Plan()

    def _narrow(self, shape: NarrowedView, row: int, rooms: Mapping[str, float]) -> None:
        """Keep a waiting spot job from kinds, and sizes, of which there is not enough left."""
        job = self._view.job(row)
        sized = Controls.COUNT in self._rules.inner.about.controls
        least = (job.demand.min if sized else job.demand.gpus) * job.demand.share
        kinds = job.demand.kinds or self._view.cluster.kinds
        full = {kind for kind in kinds if least > rooms.get(kind, 0.0) + SLACK}
        if full == set(kinds):
            self._bar(shape, row, rooms)
        elif full:
            shape.barred[row] = full
        if sized and full != set(kinds) and job.demand.max > job.demand.min:
            most = max(rooms[kind] for kind in kinds if kind not in full)
            shape.sizes[row] = max(min(job.demand.max, int(most + SLACK)), job.demand.min)

    def _refuse(self, shape: NarrowedView, more: Plan, rooms: Mapping[str, float]) -> bool:
        """Return true if a plan starts more spot jobs than have room; the last are kept back."""
        view, left, over = self._view, dict(rooms), False
        for job, to in more.changes.items():
            row = view.table.row(job)
            if to is None or not self._spot[row]:
                continue
            kind, gpus = view.cluster.kind_of(to), to.counted_gpus
            if gpus > left[kind] + SLACK:
                over = True
                self._bar(shape, row, left)
            else:
                left[kind] -= gpus
        return over

    def _bar(self, shape: NarrowedView, row: int, rooms: Mapping[str, float]) -> None:
        view, demand = self._view, self._view.job(row).demand
        shape.hidden[row] = True
        kind = max(demand.kinds or view.cluster.kinds, key=lambda name: rooms.get(name, 0.0))
        quota = self.known.quota.get(kind, 0.0)
        numbers = {
            "asks": describe_demand(demand, demand.gpus, view.cluster.kinds),
            "held": max(quota - rooms.get(kind, 0.0), 0.0),
            "quota": round(quota, 2),
            "kind": f"{kind} " if kind else "",
        }
        self.reasons[view.job(row).id] = Reason(Blocker.SPOT, numbers)

    def _victims(self, plan: Plan, blocked: Bools) -> dict[JobId, Allocation]:
        """Spot jobs that would make room for waiting jobs, the costliest first."""
        view = self._view
        mark = view.free.mark()
        room = GuaranteedTrial(view, self._spot, self.known) if carry_out(view, plan) else None
        failed: dict[tuple[str, ...], int] = {}
        rows = np.flatnonzero(blocked).tolist() if room else []
        for row in sorted(rows, key=lambda row: (-view.table.gpus[row], row)):
            job = view.job(row)
            want = job.demand.min
            if (
                room
                and want < failed.get(job.demand.kinds, want + 1)
                and not room.make_room(job, want)
            ):
                failed[job.demand.kinds] = want
        view.free.rollback(mark)
        gone = room.gone if room else []
        guests = sorted(gone, key=lambda guest: (-guest.cost, guest.job))
        return {guest.job: view.held()[guest.job] for guest in guests}

    def _best(self, to: Allocation) -> Allocation:
        """The node that suits a spot job best, of those of the kind that have room for it."""
        view, free = self._view, self._view.free
        kind, now = view.cluster.kind_of(to), view.now
        guests = self.known.spot_runs_by_node()
        nodes = [i for i, machine in enumerate(view.cluster.nodes) if machine.kind == kind]

        def rank(node: int) -> tuple[float, float, int]:
            name = view.cluster.nodes[node].id
            hour, day = (self.known.evictions(name, now - span) for span in (HOUR_S, DAY_S))
            fit = (free.on(node) + 1) * 100.0 - guests.get(name, 0)
            return fit, -eviction_score(hour, day), node

        for node in sorted((i for i in nodes if free.on(i) >= to.gpus), key=rank):
            there = replace(to, slices=(free.slice(node, to.gpus),))
            if to.slices[0].cpus == there.slices[0].cpus and free.fits(there):
                return there
        return to
