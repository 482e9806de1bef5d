"""A bound on unfairness, around any policy.

The finish-time fairness rho of a job is its completion time over that alone on an equal part of
the cluster. Every decision predicts it: the time since submission and the time left, if the job
ran from now on; where only a distribution is known, if it were among the shortest tenth of its
like. Jobs at the bound are served first, the worst of all before the others, in the places of
those that are better off; the rest is the policy's to decide. With `of=tenants` that of a tenant
counts: what its jobs take together, over what they would take on its part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job, JobId, Stage
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.taxonomy import Fairness, NeededKnowledge, declare
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools, JobTable, Rows
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.pieces.wrap.sub_cluster import decide_among
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper, WrapperMemory

EPS = 1e-6
SHORT = 0.1  # the quantile of what is left that counts where a distribution is all there is
NONE = np.zeros(0)


@dataclass(frozen=True, eq=False)
class FairMemory(WrapperMemory):
    """The inner policy's memory; per job its length and the crowd's integral at its arrival.

    Where only a distribution is known, the length is what a job ran and may still need by now.
    `area` is the integral of the number of jobs until `at`, when there were `count`. For tenants,
    `saw` is the integral of the tenants that shared the cluster with a job, and `rate` how many do
    now.
    """

    at: float = 0.0
    area: float = 0.0
    count: int = 0
    seq: Floats = field(default_factory=lambda: NONE)
    length: Floats = field(default_factory=lambda: NONE)
    seen: Floats = field(default_factory=lambda: NONE)
    saw: Floats = field(default_factory=lambda: NONE)
    rate: Floats = field(default_factory=lambda: NONE)


@frozen
class Fair(Wrapper):
    """Serve jobs first whose finish-time fairness would exceed `bound`; none: never.

    `margin` is how far below the bound that begins, as a part of the way from 1 to the bound: what
    is predicted changes until a job ends. `of=tenants` bounds what tenants suffer: jobs of one that
    would exceed it are served first, as many as its part of the cluster has room for.
    """

    bound: float | None = 1.2
    margin: float = 0.1
    of: Literal["jobs", "tenants"] = "jobs"

    adds = declare(NeededKnowledge.DURATIONS, Fairness.FINISH_TIME)

    def __post_init__(self) -> None:
        if self.bound is not None and not self.bound > 0.0:
            raise InvalidConfig(
                f"fair: bound={self.bound:g} bounds nothing",
                hint="1.2 lets jobs take a fifth longer than on an equal part of the cluster",
            )
        if not 0.0 <= self.margin < 1.0:
            raise InvalidConfig(f"fair: margin={self.margin:g} is not between 0 and 1")

    @property
    def about(self) -> About:
        """The inner policy's; a bound also needs remaining times."""
        inner = self.inner.about
        if self.bound is None:
            return inner
        return replace(inner, needs=inner.needs | Needs.REMAINING)

    def decide(self, view: View) -> Plan:
        """Places for the urgent, then the inner policy's decision about all others."""
        if self.bound is None:
            return ask(self.inner, view)
        known = view.memory if isinstance(view.memory, FairMemory) else FairMemory(at=view.now)
        left, vague = _seconds_left(view)
        kept = _follow(known, view, left, vague)
        mark_at = self.bound - self.margin * max(self.bound - 1.0, 0.0)
        if self.of == "tenants":
            tenants = read_tenants(view)
            kept = _follow_tenants(known, kept, tenants)
            alone = _alone(kept, view, kept.saw, kept.rate)
            # From now on all jobs of a tenant share its part, as they would have alone.
            pace = np.maximum(view.table.need * kept.rate / max(view.cluster.gpus, 1), 1.0)
            times = view.now - view.table.submitted + left * pace
            rho = tenant_fairness(tenants, times, alone)
            urgent = rows_within_part(view, tenants, rho >= mark_at - EPS, times / alone)
            slack = tenant_slack(tenants, times, alone, mark_at)
        else:
            alone = _alone(kept, view, kept.area - kept.seen, np.full(len(left), kept.count))
            rho = (view.now - view.table.submitted + left) / np.maximum(alone, 1e-9)
            urgent = rho >= mark_at - EPS
            slack = mark_at * alone - (rho * alone)
        if not urgent.any():
            plan = ask(self.inner, replace(view, memory=kept.inner))
        else:
            plan = _Rush(view, rho, alone, left, urgent).decide(self.inner, kept.inner)
        wake = self._wake(view, plan, slack, urgent)
        return replace(plan, wake_at=wake, memory=replace(kept, inner=plan.memory))

    def _wake(self, view: View, plan: Plan, slack: Floats, urgent: Bools) -> float | None:
        """Return when a waiting job becomes urgent, if the policy is not asked before."""
        waits = ~urgent
        for job in view.after(plan):
            waits[view.table.row(job)] = False
        for job in plan.rejected:
            waits[view.table.row(job)] = False
        soonest = float(slack[waits].min(initial=np.inf))
        wake = view.now + max(soonest, 1.0)
        if plan.wake_at is not None:
            wake = min(wake, plan.wake_at)
        return wake if np.isfinite(wake) else None


def _seconds_left(view: View) -> tuple[Floats, Bools]:
    """Seconds left of each row; where only a distribution is known, what nine of ten such exceed.

    By the mean no job would ever be late that may be short. The rows that this holds for come with
    it.
    """
    left = view.remaining()
    predictor = view.predictor()
    vague: Bools = np.isfinite(left) & ~np.isfinite(predictor.known_lengths(view.table, view.now))
    for job in view.knowledge.counted:
        if (row := view.table.find(job)) is not None:
            vague[row] = False
    if vague.any():
        least = predictor.quantiles(view.table, view.now, (SHORT,))[:, 0]
        left = np.where(vague, least, left)
    return np.nan_to_num(left, posinf=1e12), vague


def _follow(kept: FairMemory, view: View, left: Floats, vague: Bools) -> FairMemory:
    """The memory of now: lengths of newcomers and of the vague, and the crowd until now."""
    seq, n = view.table.seq, len(view.table)
    area = kept.area + kept.count * (view.now - kept.at)
    length, seen = left.copy(), np.full(n, area)
    if len(kept.seq):
        at = np.minimum(np.searchsorted(kept.seq, seq), len(kept.seq) - 1)
        old = kept.seq[at] == seq
        length[old], seen[old] = kept.length[at[old]], kept.seen[at[old]]
    length = np.where(vague, view.service() / np.maximum(view.table.need, EPS) + left, length)
    return FairMemory(kept.inner, {}, view.now, area, n, seq.copy(), length, seen)


def _follow_tenants(old: FairMemory, kept: FairMemory, tenants: Tenants) -> FairMemory:
    """The memory with the tenants that shared the cluster with each job until now, and now."""
    saw = np.zeros(len(kept.seq))
    if len(old.seq) and len(old.saw):
        at = np.minimum(np.searchsorted(old.seq, kept.seq), len(old.seq) - 1)
        known = old.seq[at] == kept.seq
        saw[known] = (old.saw + old.rate * (kept.at - old.at))[at[known]]
    return replace(kept, saw=saw, rate=tenants.crowd)


def _alone(kept: FairMemory, view: View, saw: Floats, now: Floats) -> Floats:
    """Seconds each job takes alone on its part of the cluster, given the crowd it saw so far."""
    stay = view.now - view.table.submitted
    known = (stay > EPS) & (saw > EPS)
    crowd = np.where(known, saw / np.maximum(stay, EPS), now)
    part = max(view.cluster.gpus, 1) / np.maximum(crowd, 1.0)
    alone: Floats = kept.length * np.maximum(view.table.need / part, 1.0)
    return alone


class _Rush:
    """One decision with urgent jobs."""

    def __init__(self, view: View, rho: Floats, alone: Floats, left: Floats, urgent: Bools) -> None:
        self._view = view
        self._rho = rho
        self._alone = alone
        self._left = left
        self._urgent = urgent
        self._victims: dict[int, Allocation] = {}

    def decide(self, inner: Policy, memory: object) -> Plan:
        """Urgent jobs keep what they have or get what they asked for; then the others."""
        view, mark = self._view, self._view.free.mark()
        served = self._urgent & view.running()
        if Controls.COUNT in inner.about.controls:
            served[:] = False  # running jobs may be given more
        placed = self._serve(served)
        part = replace(view, table=self._shown(served), memory=memory)
        plan = decide_among(inner, part)
        view.free.rollback(mark)
        changes: dict[JobId, Allocation | None] = {view.job(row).id: None for row in self._victims}
        changes |= plan.changes
        for row, on in self._victims.items():
            if changes[view.job(row).id] == on:
                del changes[view.job(row).id]  # it stays where it is after all
        return replace(plan, changes={**changes, **placed})

    def _serve(self, served: Bools) -> dict[JobId, Allocation]:
        """Places for urgent jobs that wait, the worst first; the ledger and `served` follow."""
        view = self._view
        placed: dict[JobId, Allocation] = {}
        waiting = np.flatnonzero(self._urgent & view.waiting())
        for row in waiting[np.argsort(-self._rho[waiting], kind="stable")].tolist():
            job = view.job(row)
            on = fewest_nodes(job, view.free) or self._displace(row)
            served[list(self._victims)] = False
            if on is not None:
                view.free.take(on)
                placed[job.id] = on
                served[row] = True
        return placed

    def _displace(self, row: int) -> Allocation | None:
        """A place where others run that are better off and may be stopped; None if none will do."""
        view, mark = self._view, self._view.free.mark()
        job = view.job(row)
        # An urgent job waits for another only if it is the better off even so.
        after = self._rho + self._left[row] / np.maximum(self._alone, 1e-9)
        better = ~self._urgent | (after < self._rho[row])
        could = view.running() & better & view.preemptible()
        could[list(self._victims)] = False
        rows = np.flatnonzero(could)
        given: list[int] = []
        for other in rows[np.argsort(self._rho[rows], kind="stable")].tolist():
            held = view.allocation(other)
            assert held is not None
            view.free.give(held)
            given.append(other)
            on = fewest_nodes(job, view.free)
            if on is not None:
                break
        else:
            view.free.rollback(mark)
            return None
        view.free.take(on)
        for other in given:  # who is not in the way stays
            held = view.allocation(other)
            assert held is not None
            if view.free.fits(held):
                view.free.take(held)
            else:
                self._victims[other] = held
        view.free.give(on)
        return on

    def _shown(self, served: Bools) -> JobTable:
        """The table of the inner policy: no urgent job that is served, and victims as waiting."""
        view = self._view
        table = view.table.pick(~served)
        for row in self._victims:
            at = table.row(view.job(row).id)
            table.allocations[at] = None
            table.set(at, TableColumns.HELD, 0.0)
            table.set(at, TableColumns.STAGE, Stage.PENDING)
        return table


# ---- How fair a tenant is treated: all its jobs' times over those on its part of the cluster
#
# A tenant's part is by its weight among the tenants that are there, and its jobs share it
# equally.


@frozen
class Tenants:
    """The tenants of a view: the one of each row, and how many jobs and which part each has."""

    of: Rows
    jobs: Floats
    part: Floats

    @property
    def crowd(self) -> Floats:
        """For each row, how many of its kind would share the cluster equally."""
        return np.asarray((self.jobs / self.part)[self.of])


def read_tenants(view: View) -> Tenants:
    """Tenants in order of their first job; a job without a tenant counts for its user."""
    names = [_tenant(job) for job in view.table.jobs]
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    of = np.array([known[name] for name in names], np.intp)
    weight = np.array([view.weights.get(name, 1.0) for name in known])
    jobs = np.bincount(of, minlength=len(known)).astype(float)
    return Tenants(of, jobs, weight / max(float(weight.sum()), 1e-9))


def tenant_fairness(tenants: Tenants, times: Floats, alone: Floats) -> Floats:
    """Each row's tenant's: what its jobs take together, over what they would take alone."""
    total = np.bincount(tenants.of, times, len(tenants.jobs))
    due = np.bincount(tenants.of, alone, len(tenants.jobs))
    return np.asarray((total / np.maximum(due, 1e-9))[tenants.of])


def tenant_slack(tenants: Tenants, times: Floats, alone: Floats, mark: float) -> Floats:
    """For each row, how long all jobs of its tenant may wait before the tenant is at `mark`.

    Infinite for a tenant that is there already: it is served as soon as anything changes.
    """
    total = np.bincount(tenants.of, times, len(tenants.jobs))
    due = np.bincount(tenants.of, alone, len(tenants.jobs))
    slack = (mark * due - total) / np.maximum(tenants.jobs, 1.0)
    return np.asarray(np.where(slack > 0.0, slack, np.inf)[tenants.of])


def rows_within_part(view: View, tenants: Tenants, late: Bools, own: Floats) -> Bools:
    """Return the rows of late tenants that their part has room for, the worst off first."""
    chosen = np.zeros(len(late), dtype=bool)
    room = tenants.part * view.cluster.gpus
    need = view.table.need
    rows = np.flatnonzero(late)
    for row in rows[np.argsort(-own[rows], kind="stable")].tolist():
        tenant = tenants.of[row]
        if room[tenant] > 0.0:  # the last may be larger than what is left of it
            chosen[row] = True
            room[tenant] -= need[row]
    return chosen


def _tenant(job: Job) -> str:
    return job.tenant or job.user
