"""Astraea: GPU time is fair between tenants and between a tenant's jobs, a lease at a time.

Paper       Ye et al., "Astraea: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters",
            IEEE TPDS 33(11), 2022.
Objective   long-term GPU-time fairness: GPU time used over GPU time deserved, of every tenant by
            its quota and of every job by an equal part of its tenant's quota.
Needs       nothing; with `order=reward` how long past jobs took, which it sees itself.
Controls    which jobs run.
Cost        O(n log n) a decision for n active jobs and O(grants x tenants).
Deviations  decisions are at multiples of `check` seconds, those without consequence left out. A job
            that a new one of its tenant displaces early in its lease keeps its progress, quotas are
            not cut to whole GPUs, a job above its tenant's quota may run if no other job needs the
            GPUs, of tenants that hold equally little the one that had less goes first, and the hour
            under way counts in a tenant's past. Tenants are those with a weight of the policy's and
            those that had a job within `history` hours. A job that is not entitled to anything yet
            counts as not served. Elastic jobs are rigid. The authors' other quota rules (hard, and
            up to 1.2 times) are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, floor
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.formulas.fairness.shares import check_weights
from weft.frozen import frozen
from weft_papers.astraea.accounts import (
    HOUR,
    AccountRows,
    AstraeaMemory,
    Hours,
    Lengths,
    Rate,
    advance,
    count_hours,
    count_lengths,
    sum_hours,
)
from weft_papers.astraea.tenants import AstraeaTenant, grant_quotas
from weft_papers.astraea.turn import AstraeaDecision, Leases, tenant_of

EPS = 1e-6
SETTLED_S = 120.0  # a job in its first lease is left alone before it ran for so long
WHERE = tax.classify(
    tax.Objective.FAIRNESS,
    tax.NeededKnowledge.NOTHING,
    tax.Preemption.STOPS,
    tax.Fairness.JOBS | tax.Fairness.USERS,
)


@frozen
class Astraea:
    """The least served tenant first, and of its jobs the least served, for one lease each.

    `lease` seconds are what a job runs before it must be chosen again; `check` is the time between
    decisions. A job that waited for `starving` seconds goes first in its tenant; new jobs may
    displace their tenant's jobs that have run less than `delay` in their lease. `block` keeps
    the jobs behind a gang that does not fit waiting with it. `low_share` of its quota is what a
    tenant is brought to before the past counts, of which `history` hours are remembered. `order`
    is by fairness, or by the chance to end within a lease among the equally served. `weights`
    are `tenant=number` joined by `/`, and go before those of the view.
    """

    lease: float = 900.0
    check: float = 10.0
    order: Literal["fairness", "reward"] = "fairness"
    starving: float = 21_600.0
    delay: float = 300.0
    block: bool = True
    low_share: float = 0.2
    history: int = 24
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("lease", self.lease), ("check", self.check)):
            if not value > 0.0:
                raise InvalidConfig(f"astraea: {name}={value:g} must be above 0 seconds")
        if self.history < 1:
            raise InvalidConfig(f"astraea: history={self.history} must be an hour at least")
        check_weights("astraea: weights", self.weights)

    @property
    def about(self) -> About:
        """About a policy that weighs tenants; gangs that do not fit leave GPUs idle."""
        return About(
            "astraea",
            "Ye et al. 2022",
            weighs=True,
            idles="the jobs of a tenant wait behind the first that does not fit",
            taxonomy=WHERE,
        )

    @property
    def _whole_lease(self) -> float:
        """A lease ends when it is next looked at."""
        return self._tick(self.lease)

    def _tick(self, at: float) -> float:
        """The first time to look from `at` on."""
        return ceil(at / self.check - EPS) * self.check

    # Ties between tenants go to the first; a look follows although no job waits; the hour that has
    # not ended counts; how the jobs of a tenant are placed.
    _in_order = _always_looks = False
    _counts_open_hour = True
    _turn = AstraeaDecision

    def decide(self, view: View) -> Plan:
        """Account for the past, take back ended leases, choose tenants, then their jobs."""
        kept = view.memory if isinstance(view.memory, AstraeaMemory) else AstraeaMemory(view.now)
        tick = self._tick(view.now)
        if tick - view.now > EPS and view.now < kept.due - EPS:
            due = min(tick, kept.due)
            return Plan(wake_at=due, memory=replace(kept, due=due))
        rows = self._advance(kept, view)
        hours = self._count_hours(kept, view.now)
        lengths = count_lengths(kept, view, self.lease) if self.order == "reward" else {}
        quotas = self._quotas(view, kept, hours)
        rejected = self._too_large(view, quotas)
        lease = self._read_leases(view, rows, lengths, rejected)
        for row in np.flatnonzero(lease.ended).tolist():
            if (on := view.allocation(row)) is not None:
                view.free.give(on)
        waiting, spare = _by_tenant(view, lease.order), _by_tenant(view, lease.early)
        tenants = self._tenants(view, rows, lease, quotas, hours, waiting)
        allowed, _ = grant_quotas(
            view.free.room(), tenants, self.lease, self.low_share, in_order=self._in_order
        )
        turn = self._turn(view, lease, block=self.block)
        for tenant in tenants:
            name = tenant.name
            turn.start(waiting.get(name, ()), spare.get(name, ()), tenant.used, allowed[name])
        plan = self._plan(view, lease, turn)
        memory = self._remember(view, rows, lease, turn, quotas, hours, lengths)
        wake = self._next_look(view, memory.rows, rejected)
        memory = replace(memory, due=np.inf if wake is None else wake)
        return replace(plan, rejected=rejected, wake_at=wake, memory=memory)

    def _advance(self, kept: AstraeaMemory, view: View) -> AccountRows:
        return advance(kept, view, self._whole_lease, self.check)

    def _count_hours(self, kept: AstraeaMemory, now: float) -> Hours:
        return count_hours(kept, now, self.history)

    def _plan(self, view: View, lease: Leases, turn: AstraeaDecision) -> Plan:  # noqa: ARG002 - others renew
        return Plan.target(view, turn.target())

    def _ended(self, view: View, rows: AccountRows) -> Bools:
        """Rows whose lease is over."""
        in_lease = rows.ran - rows.leased
        return rows.running & view.preemptible() & (in_lease >= self.lease - EPS)

    def _follows(self, now: float) -> float:
        """The next time to look."""
        return (floor(now / self.check + EPS) + 1) * self.check

    def _next_look(
        self, view: View, rows: AccountRows, rejected: Mapping[JobId, str]
    ) -> float | None:
        """Return when a waiting job may start although nothing happens; None if none can."""
        waiting = ~rows.running
        waiting[[view.table.row(job) for job in rejected]] = False
        follows = self._follows(view.now)
        in_lease = (rows.ran - rows.leased)[rows.running & view.preemptible()]
        if (in_lease >= self.lease - EPS).any():
            return follows  # a job was skipped
        if not waiting.any() and not (self._always_looks and rows.running.any()):
            return None
        until = [self.lease - in_lease]
        if (view.table.started[waiting] == np.inf).any():
            until.append(np.where(in_lease < SETTLED_S - EPS, SETTLED_S - in_lease, np.inf))
            until.append(np.where(in_lease < EPS, 0.0, np.inf))  # renewed just now
        until.append(rows.parked[waiting] + self.starving - view.now)
        soonest = min(float(left[left > -EPS].min(initial=np.inf)) for left in until)
        return max(self._tick(view.now + soonest), follows) if soonest < np.inf else follows

    def _quotas(self, view: View, kept: AstraeaMemory, hours: Hours) -> dict[str, float]:
        """GPUs of each tenant that is there, has a weight of ours, or was there lately."""
        there = dict.fromkeys(tenant_of(job) for job in view.table.jobs)
        lately = {name for rates in hours.values() for name in rates}
        names = dict.fromkeys((*self.weights, *(n for n in kept.rates if n in lately), *there))
        weights = {**view.weights, **self.weights}
        total = sum(weights.get(name, 1.0) for name in names)
        return {n: view.cluster.gpus * weights.get(n, 1.0) / total for n in names}

    def _too_large(
        self,
        view: View,  # noqa: ARG002 - some refuse by it
        quotas: Mapping[str, float],  # noqa: ARG002
    ) -> dict[JobId, str]:
        """Jobs that are refused: none, however little their tenant may have."""
        return {}

    def _read_leases(
        self, view: View, rows: AccountRows, lengths: Lengths, rejected: Mapping[JobId, str]
    ) -> Leases:
        """Jobs whose lease is over, jobs early in one, and the order in which jobs wait."""
        table, in_lease = view.table, rows.ran - rows.leased
        free_to_go = rows.running & view.preemptible()
        ended = self._ended(view, rows)
        settled = rows.renewed | (in_lease >= SETTLED_S - EPS)
        early = free_to_go & ~ended & settled & (in_lease < self.delay - EPS)
        waiting = ~rows.running | ended
        waiting[[table.row(job) for job in rejected]] = False
        parked = np.where(ended, view.now, rows.parked)
        starving = waiting & (view.now - parked >= self.starving)
        if self.order == "reward":
            chances = chance_to_end_per_gpu(rows.executed, rows.gpus, self.lease, lengths)
            keys = [classify(rows.ltgf), -chances]
        else:
            keys = [rows.ltgf]
        keys = [np.where(starving, 0.0, key) for key in keys]
        ranked = view.ranked(np.where(starving, 0.0, 1.0), *keys, table.submitted, parked)
        return Leases(
            ended,
            in_lease,
            starving,
            [row for row in ranked.tolist() if waiting[row]],
            self._best_served(view, rows, [r for r in ranked[::-1].tolist() if early[r]]),
        )

    def _best_served(
        self,
        view: View,  # noqa: ARG002 - some rank jobs again
        rows: AccountRows,  # noqa: ARG002
        early: list[int],
    ) -> list[int]:
        """Rows early in a lease, in the order in which they are displaced."""
        return early

    def _tenants(
        self,
        view: View,
        rows: AccountRows,
        lease: Leases,
        quotas: Mapping[str, float],
        hours: Hours,
        waiting: Mapping[str, Sequence[int]],
    ) -> list[AstraeaTenant]:
        """The tenants with their past and what they want to start."""
        before = int(view.now // HOUR) + self._counts_open_hour
        held: dict[str, float] = defaultdict(float)
        for name, gpus, runs in self._jobs(view, rows, rows.running & ~lease.ended):
            held[name] += gpus * runs
        tenants = []
        for name, quota in quotas.items():
            past = sum_hours(hours, name, before)
            gangs = [float(rows.gpus[row]) for row in waiting.get(name, ())]
            tenants.append(AstraeaTenant(name, quota, held[name], past.used, past.quota, gangs))
        return tenants

    def _remember(
        self,
        view: View,
        rows: AccountRows,
        lease: Leases,
        turn: AstraeaDecision,
        quotas: Mapping[str, float],
        hours: Hours,
        lengths: Lengths,
    ) -> AstraeaMemory:
        """Return the accounts for the next decision, with the rates that hold until then."""
        running = rows.running & ~lease.ended
        running[list(turn.displaced)] = False
        running[list(turn.started)] = True
        begun = np.zeros(len(running), dtype=bool)
        begun[list(turn.started)] = True
        stopped = rows.running & ~running
        counts: dict[str, int] = defaultdict(int)
        asked: dict[str, float] = defaultdict(float)
        used: dict[str, float] = defaultdict(float)
        for name, gpus, runs in self._jobs(view, rows, running):
            counts[name] += 1
            asked[name] += gpus
            used[name] += gpus * runs
        names = [tenant_of(job) for job in view.table.jobs]
        part = np.array([quotas[name] / counts[name] for name in names])
        rates = {n: Rate(used[n], min(asked[n], q), q) for n, q in quotas.items()}
        fresh = replace(
            rows,
            running=running,
            rate=np.minimum(rows.gpus, part) if len(part) else rows.rate,
            leased=np.where(begun, rows.ran, rows.leased),
            parked=np.where(stopped, view.now, rows.parked),
            renewed=rows.renewed | lease.ended,
        )
        return AstraeaMemory(view.now, rows=fresh, rates=rates, hours=hours, lengths=lengths)

    def _jobs(
        self, view: View, rows: AccountRows, running: Bools
    ) -> Iterator[tuple[str, float, bool]]:
        """The tenant of each job, its GPUs, and whether it runs."""
        names = (tenant_of(job) for job in view.table.jobs)
        yield from zip(names, rows.gpus.tolist(), running.tolist(), strict=True)


def _by_tenant(view: View, rows: Sequence[int]) -> dict[str, list[int]]:
    by_tenant: dict[str, list[int]] = {}
    for row in rows:
        by_tenant.setdefault(tenant_of(view.job(row)), []).append(row)
    return by_tenant


# ---- Which job of a tenant is next: the least served, or the one most likely to end soon


CLASSES = 5
FEWEST_BINS = 5  # of a histogram that says something

Histogram = Mapping[int, int]


def classify(ltgf: Floats, classes: int = CLASSES) -> Floats:
    """The discrete class of each fairness ratio: lower is served less; 0 where nothing was."""
    log = np.log(np.maximum(ltgf, 1e-300))
    f = -log / np.sqrt(1.0 + log**2)
    numbers: Floats = classes - np.floor((f + 1.0) / 2.0 * classes)
    numbers[ltgf <= 0.0] = 0.0
    return numbers


def chance_to_end(executed: float, lease: float, ended: Histogram) -> float:
    """Probability that a job ends within its next lease, given how long it has run.

    `ended` counts jobs by the number of whole leases they took; beyond them the end is near.
    """
    here = int(executed // lease)
    behind = sum(count for bin_, count in ended.items() if bin_ >= here)
    return ended.get(here, 0) / behind if behind else 1.0


def chance_to_end_per_gpu(
    executed: Floats, gpus: Floats, lease: float, lengths: Mapping[float, Histogram]
) -> Floats:
    """The chance to end within a lease for each GPU: jobs of the same size are the evidence."""
    everybody: dict[int, int] = {}
    for counts in lengths.values():
        for bin_, count in counts.items():
            everybody[bin_] = everybody.get(bin_, 0) + count
    chances = np.zeros(len(executed))
    known: dict[tuple[float, int], float] = {}
    for i, (ran, size) in enumerate(zip(executed.tolist(), gpus.tolist(), strict=True)):
        key = (size, int(ran // lease))
        if key not in known:
            own = lengths.get(size, {})
            evidence = own if len(own) >= FEWEST_BINS else everybody
            known[key] = chance_to_end(ran, lease, evidence)
        chances[i] = known[key] / max(size, 1e-9)
    return chances
