"""Limits and weights of tenants, around any policy.

The inner policy decides first. Where its plan would give a tenant more than it may hold, the
jobs that go too far are taken out of its sight, or the sizes and kinds it may choose for them
are narrowed, and it decides again: what it promises then always hangs together. Nothing is taken
from jobs that run; a limit that was lowered takes effect as they end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Job
from weft.core.plan.about import About, Controls, may_idle
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.reasons import Blocker, Reason
from weft.core.plan.taxonomy import Fairness, Objective, declare
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.reason_news import tell_news
from weft.pieces.wrap.sub_cluster import carry_out, decide_among
from weft.stack.wrapper import Wrapper, WrapperMemory

ANY = ""


@frozen
class TenantRules:
    """Limits on GPUs held at once by (tenant, kind), ANY for all kinds; weights by tenant."""

    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def of(self, tenant: str) -> dict[str, float]:
        """The limits of one tenant by kind."""
        return {kind: most for (who, kind), most in self.limits.items() if who == tenant}


def read_rules(limits: Mapping[str, float], weights: Mapping[str, float]) -> TenantRules:
    """From limits of `tenant` and `tenant@kind`, and weights of `tenant`."""
    most: dict[tuple[str, str], float] = {}
    for who, number in limits.items():
        tenant, _, kind = who.partition("@")
        if not tenant or not number >= 0.0:
            raise InvalidConfig(
                f"limit {who}={number:g} is not a number of GPUs of a tenant",
                hint="for example vision=8 or vision@a100=4",
            )
        most[tenant, kind] = number
    for tenant, number in weights.items():
        if not tenant or not number > 0.0:
            raise InvalidConfig(f"weight {tenant}={number:g} must be above 0")
    return TenantRules(most, dict(weights))


def fill(
    capacity: float, demand: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Capacity by weight, no tenant above its demand: what one leaves, the others divide.

    A tenant without a weight has weight 1.
    """
    target = dict.fromkeys(demand, 0.0)
    open_to = {tenant for tenant, wanted in demand.items() if wanted > 0.0}
    left = capacity
    while open_to and left > 1e-9:
        total = sum(weights.get(tenant, 1.0) for tenant in open_to)
        level = min((demand[t] - target[t]) / weights.get(t, 1.0) for t in open_to)
        step = min(level, left / total)
        for tenant in open_to:
            target[tenant] += step * weights.get(tenant, 1.0)
        left -= step * total
        open_to = {t for t in open_to if demand[t] - target[t] > 1e-9}
    return target


TRIES = 6
SLACK = 1e-9
NOTHING = Plan()


@dataclass(slots=True)
class NarrowedView:
    """The view of the inner policy: rows without the hidden ones, others narrowed."""

    hidden: Bools
    sizes: dict[int, int] = field(default_factory=dict)
    barred: dict[int, set[str]] = field(default_factory=dict)
    reasons: dict[int, Reason] = field(default_factory=dict)

    def hide(self, row: int, why: Reason) -> None:
        """Keep a waiting row waiting."""
        self.hidden[row] = True
        self.reasons[row] = why

    def view(self, view: View, memory: object, before: Plan) -> View:
        """The view with this shape, once `before` is carried out."""
        part = view.restrict(~self.hidden, before.changes)
        table = part.table
        for row in {*self.sizes, *self.barred}:
            job = view.job(row)
            if self.hidden[row]:
                continue
            at, demand = table.row(job.id), job.demand
            if row in self.barred:
                kinds = demand.kinds or view.cluster.kinds
                left = tuple(kind for kind in kinds if kind not in self.barred[row])
                demand = replace(demand, kinds=left)
            plans = job.plans
            if row in self.sizes:
                most = self.sizes[row]
                plans = _runnable(job, most)
                if job.plans and not plans:
                    continue  # as it is, and refused if it goes too far
                demand = replace(demand, max=most, gpus=min(demand.gpus, most))
                table.set(at, TableColumns.MAX, most)
                table.set(at, TableColumns.GPUS, demand.gpus)
                table.set(at, TableColumns.NEED, demand.gpus * demand.share)
            table.jobs[at] = replace(job, demand=demand, plans=plans)
        return replace(part, memory=memory)


def _runnable(job: Job, most: int) -> tuple[Execution, ...]:
    """The execution plans of a job that run on at most that many GPUs."""
    sizes = range(max(job.demand.min, 1), most + 1)
    return tuple(plan for plan in job.plans if any(plan.on(gpus) for gpus in sizes))


@frozen
class Quota(Wrapper):
    """Keep every tenant within its limits and, while others wait, near its weighted share.

    `limits` are `tenant=8` and `tenant@kind=4`, `weights` are `tenant=2`, joined by `/`. A
    tenant below its share may start one gang across it, so that large gangs are not shut out;
    what no tenant below its share can use goes to any tenant. A policy that divides by weights
    itself is shown them, and left to it.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    adds = declare(Objective.GUARANTEES, Fairness.USERS)

    def __post_init__(self) -> None:
        read_rules(self.limits, self.weights)

    @property
    def about(self) -> About:
        if not (self.limits or self.weights):
            return self.inner.about
        return may_idle(self.inner.about, "a tenant is at its limit")

    def decide(self, view: View) -> Plan:
        """The inner policy's decision within the rules."""
        rules = read_rules(self.limits, self.weights)
        known = recall(view, WrapperMemory)
        if rules.weights:
            view = replace(view, weights={**view.weights, **rules.weights})
        targets = _targets(view, rules) if rules.weights and not self.about.weighs else {}
        shape, plan = self._within(view, rules, targets, known.inner)
        shared = any(why.blocker is Blocker.SHARE for why in shape.reasons.values())
        if shared or self._has_room(view, rules, plan, shape):
            plan = self._leftovers(view, rules, plan, known.inner)
        return _add_reasons(view, plan, shape, known)

    def _has_room(self, view: View, rules: TenantRules, plan: Plan, shape: NarrowedView) -> bool:
        """True if a job was kept from starting by a limit that leaves room for it after all."""
        resized = Controls.COUNT in self.about.controls
        check = QuotaCheck(view, plan, rules, {}, resized=resized)
        check.count()
        return any(check.has_room(row) for row in shape.reasons)

    def _leftovers(self, view: View, rules: TenantRules, plan: Plan, memory: object) -> Plan:
        """With what no tenant below its share can use given to the others.

        They come beside all that runs and all that was decided, and replace none of it.
        """
        mark = view.free.mark()
        beside = view.running()
        for job in plan.changes:
            beside[view.table.row(job)] = True
        try:
            if not carry_out(view, plan):
                return plan
            _, more = self._within(view, rules, {}, memory, NarrowedView(beside), plan)
        finally:
            view.free.rollback(mark)
        return plan.joined(more)

    def _within(
        self,
        view: View,
        rules: TenantRules,
        targets: Mapping[str, float],
        memory: object,
        shape: NarrowedView | None = None,
        before: Plan = NOTHING,
    ) -> tuple[NarrowedView, Plan]:
        """A plan that keeps the rules after `before`, and what had to be hidden for it."""
        shape = shape or NarrowedView(np.zeros(len(view.table), dtype=bool))
        resized = Controls.COUNT in self.about.controls
        QuotaCheck(view, before, rules, {}, resized=resized).bar_too_large(shape)
        for _ in range(TRIES):
            plan = self._ask(view, shape, memory, before)
            both = Plan({**before.changes, **plan.changes})
            over = QuotaCheck(view, both, rules, targets, resized=resized).narrow(shape)
            if not over:
                return shape, plan
        _freeze(view, rules, over, shape)
        return shape, self._ask(view, shape, memory, before)

    def _ask(self, view: View, shape: NarrowedView, memory: object, before: Plan) -> Plan:
        return decide_among(self.inner, shape.view(view, memory, before))


class QuotaCheck:
    """One plan held against the rules."""

    def __init__(
        self,
        view: View,
        plan: Plan,
        rules: TenantRules,
        targets: Mapping[str, float],
        *,
        resized: bool,
    ) -> None:
        self._view = view
        self._plan = plan
        self._rules = rules
        self._targets = targets
        self._resized = resized
        self._used: defaultdict[tuple[str, str], float] = defaultdict(float)
        for job, kind, on in view.held_out_of_sight():
            self._add(job.tenant, kind, _gpus(on))
        self._kept: set[int] = set()

    def narrow(self, shape: NarrowedView) -> set[str]:
        """Hide or narrow what goes too far; the tenants that did."""
        view, over = self._view, set()
        for row, on in self._in_turn():
            tenant = view.job(row).tenant
            kind, gpus = view.cluster.kind_of(on), _gpus(on)
            was = view.allocation(row)
            before = _gpus(was) if was is not None and view.cluster.kind_of(was) == kind else 0.0
            full = self._full(tenant, kind, gpus) if gpus > before else None
            if full is None:
                self._add(tenant, kind, gpus)
                self._kept.add(row)
            else:
                over.add(tenant)
                self._refuse(shape, row, full, was)
        for tenant in over:
            self._close(shape, tenant)
        return over

    def bar_too_large(self, shape: NarrowedView) -> None:
        """Hide waiting rows that ask for more than their tenant may ever hold."""
        lowest = min(self._rules.limits.values(), default=np.inf)
        large = (
            self._view.table.column(TableColumns.GPUS) > lowest
        )  # few, or none: the rest is in Python
        kinds = (ANY, *self._view.cluster.kinds)
        for row in map(int, np.flatnonzero(self._view.waiting() & ~shape.hidden & large)):
            job, least = self._view.job(row), self._least(row)
            for kind in kinds:
                if least > self._rules.limits.get((job.tenant, kind), np.inf) + SLACK:
                    self._bar(shape, row, kind)

    def count(self) -> None:
        for row, on in self._in_turn():
            self._add(self._view.job(row).tenant, self._view.cluster.kind_of(on), _gpus(on))

    def has_room(self, row: int) -> bool:
        """True if a waiting row could start within all limits, on some kind of its own."""
        job, least = self._view.job(row), self._least(row)
        kinds = job.demand.kinds or self._view.cluster.kinds
        return any(self._full(job.tenant, kind, least) is None for kind in kinds)

    def _least(self, row: int) -> float:
        """The number of GPUs that a row has to have to run."""
        demand = self._view.job(row).demand
        return (demand.min if self._resized else demand.gpus) * demand.share

    def _add(self, tenant: str, kind: str, gpus: float) -> None:
        self._used[tenant, ANY] += gpus
        self._used[tenant, kind] += gpus

    def _in_turn(self) -> Iterator[tuple[int, Allocation]]:
        """Allocations that jobs would hold: unchanged ones, other running ones, then new ones.

        Each in the plan's order.
        """
        table, changes = self._view.table, self._plan.changes
        limited = {tenant for tenant, _ in self._rules.limits} | set(self._targets)
        held = [(row, on) for row, on in enumerate(table.allocations) if on is not None]
        for row, on in held:
            job = table.jobs[row]
            if job.id not in changes and job.tenant in limited:
                yield row, on
        rows = {table.row(job): to for job, to in changes.items()}
        for row in sorted(rows, key=lambda row: table.allocations[row] is None):
            to = rows[row]
            if to is not None and table.jobs[row].tenant in limited:
                yield row, to

    def _full(self, tenant: str, kind: str, gpus: float) -> str | None:
        """The limit of a tenant that stands against `gpus` more: a kind, ANY, or `share`."""
        for which in (ANY, kind):
            most = self._rules.limits.get((tenant, which))
            if most is not None and self._used[tenant, which] + gpus > most + SLACK:
                return which
        target = self._targets.get(tenant)
        if target is not None and self._used[tenant, ANY] >= target - SLACK:
            return SHARE
        return None

    def _refuse(self, shape: NarrowedView, row: int, full: str, was: Allocation | None) -> None:
        view = self._view
        job = view.job(row)
        if was is not None:
            shape.sizes[row] = was.gpus
            shape.barred[row] = set(view.cluster.kinds) - {view.cluster.kind_of(was)}
            return
        most = int((self._room(job.tenant, full) + SLACK) / job.demand.share)
        if self._resized and full != SHARE and most >= job.demand.min:
            shape.sizes[row] = min(most, shape.sizes.get(row, most))
        else:
            self._bar(shape, row, full)

    def _close(self, shape: NarrowedView, tenant: str) -> None:
        """Waiting jobs of a full tenant that could only go too far again."""
        view = self._view
        full = [kind for kind in (ANY, *view.cluster.kinds) if (tenant, kind) in self._rules.limits]
        rooms = {kind: self._room(tenant, kind) for kind in full}
        target = self._targets.get(tenant)
        shut = target is not None and self._used[tenant, ANY] >= target - SLACK
        for row in map(int, np.flatnonzero(view.waiting() & ~shape.hidden)):
            job = view.job(row)
            if job.tenant != tenant or row in self._kept:
                continue
            if shut:
                self._bar(shape, row, SHARE)
                continue
            for kind, room in rooms.items():
                if self._least(row) > room + SLACK:
                    self._bar(shape, row, kind)

    def _room(self, tenant: str, kind: str) -> float:
        return self._rules.limits.get((tenant, kind), 0.0) - self._used[tenant, kind]

    def _bar(self, shape: NarrowedView, row: int, full: str) -> None:
        view = self._view
        job = view.job(row)
        if full in (ANY, SHARE):
            shape.hide(row, self._why(job, full))
            return
        barred = shape.barred.setdefault(row, set())
        barred.add(full)
        if not set(job.demand.kinds or view.cluster.kinds) - barred:
            shape.hide(row, self._why(job, full))

    def _why(self, job: Job, full: str) -> Reason:
        if full == SHARE:
            return Reason(Blocker.SHARE, {"tenant": job.tenant})
        limit, kind = self._rules.limits[job.tenant, full], f"{full} " if full else ""
        asks = (job.demand.min if self._resized else job.demand.gpus) * job.demand.share
        blocker = Blocker.TOO_LARGE if asks > limit + SLACK else Blocker.QUOTA
        numbers = {"asks": asks, "tenant": job.tenant, "limit": limit, "kind": kind}
        return Reason(blocker, numbers)


SHARE = "*share"


def _gpus(on: Allocation) -> float:
    return on.counted_gpus


def _targets(view: View, rules: TenantRules) -> dict[str, float]:
    """The share of each tenant now; nothing while there is enough for all."""
    demand: defaultdict[str, float] = defaultdict(float)
    table = view.table
    for job, _, on in view.held_out_of_sight():
        demand[job.tenant] += _gpus(on)
    for row, job in enumerate(table.jobs):
        held = table.allocations[row]
        demand[job.tenant] += job.demand.gpus * job.demand.share if held is None else _gpus(held)
    for tenant in demand:
        demand[tenant] = min(demand[tenant], rules.limits.get((tenant, ANY), np.inf))
    if sum(demand.values()) <= view.cluster.gpus + SLACK:
        return {}
    return fill(float(view.cluster.gpus), demand, rules.weights)


def _freeze(view: View, rules: TenantRules, tenants: set[str], shape: NarrowedView) -> None:
    """Last resort: these tenants get nothing more in this decision."""
    for row in range(len(view.table)):
        job, on = view.job(row), view.allocation(row)
        if job.tenant not in tenants:
            continue
        if on is None:
            limit = rules.limits.get((job.tenant, ANY), 0.0)
            asks = job.demand.min * job.demand.share
            numbers = {"asks": asks, "tenant": job.tenant, "limit": limit, "kind": ""}
            shape.hide(row, Reason(Blocker.QUOTA if limit else Blocker.SHARE, numbers))
        else:
            shape.hidden[row] = True


def _add_reasons(view: View, plan: Plan, shape: NarrowedView, known: WrapperMemory) -> Plan:
    """The plan with reasons for jobs that were not given before; logs stay small."""
    wait = {job.tenant for job in _left_waiting(view, plan)}
    hidden = {
        job.id: why
        for row, why in shape.reasons.items()
        if (job := view.job(row)).id not in plan.changes
        and (why.blocker is not Blocker.SHARE or wait - {job.tenant})
    }
    return tell_news(view, plan, hidden, known)


def _left_waiting(view: View, plan: Plan) -> Iterator[Job]:
    """Jobs that wait once the plan is carried out."""
    for row in np.flatnonzero(view.waiting()).tolist():
        if (job := view.job(row)).id not in plan.changes:
            yield job
