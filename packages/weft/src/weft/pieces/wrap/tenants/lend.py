"""Quotas that are lent while idle and taken back when needed, around any policy.

Every tenant has GPUs of its own, and so may groups of tenants. Jobs within their tenant's own start
first, taking back what others run on beyond theirs; then jobs within their group's; what is
left is lent to any tenant, first to the tenant that has used least for its weight of late. A job
that was started is left alone for a while before it has to give way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import inf

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.plan.about import About, Controls, may_idle
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker, Reason, asks_for
from weft.core.plan.taxonomy import Fairness, Objective, Preemption, declare
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.releasing import devices_of
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.reason_news import tell_news
from weft.pieces.wrap.sub_cluster import carry_out, decide_among
from weft.pieces.wrap.tenants.tree import TenantTree, held_by_tenant, number_tenants, read_tree
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper, WrapperMemory

SLACK = 1e-9


@frozen
class LendMemory(WrapperMemory):
    """The inner policy's memory; what tenants used recently, up to when; the reasons of jobs."""

    used: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0
    gave_way: Mapping[JobId, Reason] = field(default_factory=dict)


@frozen
class Lend(Wrapper):
    """Give every tenant its own GPUs first, and lend what is idle.

    `own` are GPUs by tenant or group, `parents` the group of a tenant or group, `weights` parts of
    what is lent. What was used counts half after `half_life_s` seconds. A job runs for `min_run_s`
    seconds before it has to give way.
    """

    own: Mapping[str, float] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    half_life_s: float = 7 * 86_400.0
    min_run_s: float = 300.0

    adds = declare(Objective.GUARANTEES | Objective.UTILIZATION, Fairness.USERS, Preemption.STOPS)

    def __post_init__(self) -> None:
        read_tree(self.own, self.parents)
        if self.half_life_s <= 0.0 or self.min_run_s < 0.0:
            raise InvalidConfig(
                f"lend: half_life_s {self.half_life_s:g}, min_run_s {self.min_run_s:g}",
                hint="half_life_s is above 0, min_run_s not below it",
            )

    @property
    def about(self) -> About:
        about = self.inner.about
        return may_idle(about, "a tenant is at its limit") if self.own else about

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, for the most entitled first."""
        kept = view.memory if isinstance(view.memory, LendMemory) else LendMemory(at=view.now)
        used = self._used(view, kept)
        seen = replace(view, memory=kept.inner)
        if not self.own or not view.table.waiting:
            plan = ask(self.inner, seen)
            return replace(plan, memory=LendMemory(plan.memory, used=used, at=view.now))
        turn = _Turn(self, seen, read_tree(self.own, self.parents), used)
        mark = view.free.mark()
        try:
            plan = turn.whole()
        finally:
            view.free.rollback(mark)
        waits = {
            job: why
            for job, why in kept.gave_way.items()
            if job in view.table and job not in plan.changes
        }
        gave_way = {**waits, **turn.gave_way}
        why = {**gave_way, **turn.reasons}
        kept = LendMemory(None, kept.told, used, view.now, gave_way)
        return tell_news(view, replace(plan, memory=turn.memory), why, kept)

    def _used(self, view: View, kept: LendMemory) -> dict[str, float]:
        """GPU-seconds of each tenant, older ones counting less."""
        passed = max(view.now - kept.at, 0.0)
        left = 0.5 ** (passed / self.half_life_s)
        used = {who: gpu_s * left for who, gpu_s in kept.used.items() if gpu_s * left > 1.0}
        for who, gpus in held_by_tenant(view).items():
            used[who] = used.get(who, 0.0) + gpus * passed
        return used


class _Turn:
    """One decision, level by level: within one's own, within a group's, and beyond."""

    def __init__(self, rule: Lend, view: View, tree: TenantTree, used: Mapping[str, float]) -> None:
        self._rule, self._view, self._tree, self._used = rule, view, tree, used
        self._tenants, self._tenant_of = number_tenants(view)
        self._held = held_by_tenant(view)
        self._decided = np.zeros(len(view.table), dtype=bool)
        self._controls = rule.inner.about.controls
        sized, demands = Controls.COUNT in self._controls, [job.demand for job in view.table.jobs]
        self._needs = [(ask.min if sized else ask.gpus) * ask.share for ask in demands]
        self._changes, self._stopped = dict[JobId, Allocation | None](), dict[JobId, Allocation]()
        self._promised: set[tuple[str, int]] = set()
        self._wake, self._admitted = inf, frozenset[JobId]()
        self._rejected, self._texts = dict[JobId, str](), dict[JobId, str]()
        self._words = dict[JobId, Blocker]()
        self._facts = dict[JobId, Mapping[str, object]]()
        self.memory: object = view.memory
        self.reasons: dict[JobId, Reason] = {}
        self.gave_way: dict[JobId, Reason] = {}

    def whole(self) -> Plan:
        """All tenants in turn; none gets devices that a more entitled one is about to use."""
        first = True
        for level in range(self._tree.depth):
            rows = self._entitled(level)
            if rows.any() or first:
                beside = self._view.running() if first else self._on_loan(level)
                self._offer(rows, beside, self._view.memory if first else None)
                first = False
            self._take_back_all(rows, level)
            if self._waiting(rows).any():
                self._promise(self._waiting(rows), level)
        before = len(self._changes)
        self._lend()
        if len(self._changes) > before:  # borrowers have more to give now
            for level in range(self._tree.depth):
                self._take_back_all(self._entitled(level), level)
        if self._promised:
            self._tell_waiting(self._open() & ~self._entitled_at_all())
        wake = None if self._wake == inf else self._wake
        plan = Plan(
            self._all_changes(), self._rejected, wake, self._texts, self.memory, self._words
        )
        return replace(plan, promised=self._admitted, facts=self._facts)

    def _all_changes(self) -> dict[JobId, Allocation | None]:
        """Changes that were decided, and a stop for jobs that gave way and found no other place."""
        changes = {**dict.fromkeys(self._stopped, None), **self._changes}
        for job, was in self._stopped.items():
            if changes[job] is not None:
                del self.gave_way[job]
            if changes[job] == was:
                del changes[job]
        return changes

    def _entitled(self, level: int) -> Bools:
        """Waiting rows that are within their own at this level, taken one after the other."""
        mask = np.zeros(len(self._view.table), dtype=bool)
        held, beyond = self._tree.add_up(self._held), set[tuple[str, float]]()
        jobs = self._view.table.jobs
        for row in np.flatnonzero(self._open()).tolist():
            tenant, need = key = jobs[row].tenant, self._needs[row]
            if key in beyond:
                continue
            if (within := held.level(tenant, need)) == level:
                mask[row] = True
                held.add(tenant, need)
            elif within > level:  # and it stays so, for more and more is held
                beyond.add(key)
        return mask

    def _open(self) -> Bools:
        """Rows that wait, also after what was decided so far."""
        return self._view.waiting() & ~self._decided

    def _waiting(self, rows: Bools) -> Bools:
        return rows & self._open()

    def _offer(self, rows: Bools, beside: Bools, memory: object) -> None:
        """Ask the policy about these and about some running jobs, beside all other running jobs."""
        view, shown = self._view, (rows | beside) & ~self._decided
        part = view.restrict(shown, self._changes)
        plan = decide_among(self._rule.inner, replace(part, memory=memory))
        self._adopt(without_swaps(self._view, plan))

    def _on_loan(self, level: int) -> Bools:
        """Running rows of tenants beyond what is theirs up to a level; no others are changed.

        Among them the policy says which give way to which.
        """
        over = self._over(level)
        lent = np.array([over.get(who, 0.0) > SLACK for who in self._tenants], dtype=bool)
        mask: Bools = self._view.running() & lent[self._tenant_of]
        return mask & ~self._is_promised()

    def _is_promised(self) -> Bools:
        """Rows on devices that a more entitled tenant waits for."""
        if not self._promised:
            return np.zeros(len(self._view.table), dtype=bool)
        held = [() if on is None else devices_of(on) for on in self._view.table.allocations]
        return np.array([not self._promised.isdisjoint(on) for on in held], dtype=bool)

    def _adopt(self, plan: Plan) -> None:
        view = self._view
        mark = view.free.mark()
        if not carry_out(view, plan):
            view.free.rollback(mark)
            return
        for job, to in plan.changes.items():
            was = view.holds(job)
            tenant = view.job(view.table.row(job)).tenant
            self._held[tenant] -= 0.0 if was is None else was.counted_gpus
            self._held[tenant] += 0.0 if to is None else to.counted_gpus
            self._decided[view.table.row(job)] = True
        self._changes |= dict(plan.changes)
        if self.memory is view.memory and plan.memory is not None:
            self.memory = plan.memory
        self._wake = min(self._wake, inf if plan.wake_at is None else plan.wake_at)
        self._admitted |= plan.promised
        self._rejected |= dict(plan.rejected)
        self._texts |= dict(plan.reasons)
        self._words |= dict(plan.blockers)
        self._facts |= dict(plan.facts)

    def _promise(self, rows: Bools, level: int) -> None:
        """Keep what these start on as soon as jobs have run for long enough to give way."""
        view, young = self._view, self._victims(level, aged=False)
        if not young:
            return
        mark = view.free.mark()
        plan = self._plan_without(young, rows)
        view.free.rollback(mark)
        for to in plan.changes.values():
            self._promised |= set() if to is None else {*devices_of(to)}
        for i, node in enumerate(view.cluster.nodes):
            idle = view.free.idle_mask(i)
            gpus = [gpu for gpu in range(node.gpus) if (node.id, gpu) in self._promised]
            if kept := tuple(gpu for gpu in gpus if idle >> gpu & 1):
                view.free.take(Allocation((Slice(node.id, kept),)))

    def _plan_without(self, leaving: list[int], rows: Bools) -> Plan:
        """The plan for these if the others gave up what they hold; the ledger has it so."""
        view = self._view
        for row in leaving:
            on = view.allocation(row)
            assert on is not None
            view.free.give(on)
        decided = {**self._changes, **dict.fromkeys(view.job(row).id for row in leaving)}
        part = replace(view.restrict(rows, decided), memory=None)
        return decide_among(self._rule.inner, part)

    def _entitled_at_all(self) -> Bools:
        """Waiting rows that are within their own, or their groups'."""
        mask: Bools = np.any([self._entitled(level) for level in range(self._tree.depth)], axis=0)
        return mask

    def _take_back(self, rows: Bools, victims: list[int]) -> None:
        """Start these on what others hold beyond their own, if that can be done."""
        view = self._view
        if not victims:
            return
        mark = view.free.mark()
        plan = self._plan_without(victims, rows)
        starts = {job: to for job, to in plan.changes.items() if to is not None}
        fine = bool(starts) and carry_out(view, replace(plan, changes=starts))
        stops = self._put_back(victims, starts) if fine else []
        view.free.rollback(mark)
        if fine:
            self._note_stops(stops, starts)
            self._release(stops)
            self._adopt(Plan(starts))

    def _take_back_all(self, rows: Bools, level: int) -> None:
        """For all of these; then for each that still waits, from jobs on its kinds."""
        if not self._waiting(rows).any():
            return
        self._take_back(self._waiting(rows), self._victims(level))
        waits = map(int, np.flatnonzero(self._waiting(rows)))
        for kinds in sorted({self._view.job(row).demand.kinds for row in waits} - {()}):
            victims, jobs = self._victims(level, kinds=kinds), self._view.table.jobs
            alike = np.array([job.demand.kinds == kinds for job in jobs], dtype=bool)
            self._take_back(self._waiting(rows) & alike, victims)

    def _release(self, rows: list[int]) -> None:
        """Take away what these hold; they wait with the others for what is left."""
        view = self._view
        for row in rows:
            job, on = view.job(row), view.allocation(row)
            assert on is not None
            view.free.give(on)
            self._stopped[job.id] = on
            self._held[job.tenant] -= on.counted_gpus
        self._view = view.released(np.array(rows, dtype=np.intp))

    def _put_back(self, victims: list[int], starts: Mapping[JobId, Allocation]) -> list[int]:
        """Put back those that fit beside the starts; the others have to go."""
        view, gone = self._view, []
        firm = [to for job, to in starts.items() if not view.job(view.table.row(job)).shareable]
        alone = {device for to in firm for device in devices_of(to)}
        for row in reversed(victims):  # the last to give way stay first
            on = view.allocation(row)
            assert on is not None
            if view.free.fits(on) and alone.isdisjoint(devices_of(on)):
                view.free.take(on)
            else:
                gone.append(row)
        return gone

    def _victims(self, level: int, *, aged: bool = True, kinds: tuple[str, ...] = ()) -> list[int]:
        """Running rows on what is not their tenant's, those that owe most and lose least first.

        If `aged` those that have run for long enough; of some `kinds` those that are on these.
        """
        view, table = self._view, self._view.table
        runs = table.column(TableColumns.RAN_RATE) > 0.0
        age = np.where(runs, view.now - table.column(TableColumns.RAN_SINCE), 0.0)
        victims, over = [], self._over(level)
        may = view.running() & view.preemptible() & ~self._is_promised()
        for row in map(int, np.flatnonzero(may)):
            job = view.job(row)
            if job.id in self._changes or over.get(job.tenant, 0.0) <= SLACK:
                continue
            if aged and age[row] < self._rule.min_run_s - 1e-6:
                self._wake = min(self._wake, view.now + self._rule.min_run_s - float(age[row]))
                continue
            on = view.allocation(row)
            assert on is not None
            if kinds and view.cluster.kind_of(on) not in kinds:
                continue
            victims.append((-over[job.tenant], on.gpus * float(age[row]), row))
        chosen = []
        for _, _, row in sorted(victims):
            tenant, on = view.job(row).tenant, view.allocation(row)
            assert on is not None
            if over[tenant] > SLACK:
                chosen.append(row)
                over[tenant] -= on.counted_gpus
        return chosen

    def _over(self, level: int) -> dict[str, float]:
        """GPUs that each tenant holds beyond what is its own up to a level."""
        held = self._tree.add_up(self._held)
        return {who: held.beyond(who, level) for who in self._held}

    def _note_stops(self, stops: list[int], starts: Mapping[JobId, Allocation]) -> None:
        view = self._view
        to = sorted({view.job(view.table.row(job)).tenant for job in starts})
        for row in stops:
            on = view.allocation(row)
            assert on is not None
            ran = float(view.now - view.table.get(row, TableColumns.RAN_SINCE))
            kind = view.cluster.kind_of(on)
            numbers = {
                "gpus": asks_for(on.gpus, (kind,), on.sharing.share),
                "to": " and ".join(map(repr, to)),
                "minutes": ran / 60.0,
            }
            self.gave_way[view.job(row).id] = Reason(Blocker.RECLAIMED, numbers)

    def _lend(self) -> None:
        """Lend what is left, a tenant at a time: first the one that used least for its weight."""
        weights = self._rule.weights
        waiting = np.unique(self._tenant_of[self._open()]).tolist()

        def owes(number: int) -> tuple[float, str]:
            who = self._tenants[number]
            return self._used.get(who, 0.0) / weights.get(who, 1.0), who

        count, lent = -1, self._decided
        for number in sorted(waiting, key=owes):
            rows = self._open() & (self._tenant_of == number)
            if not rows.any():
                continue
            if count != len(self._changes):
                count, lent = len(self._changes), self._on_loan(self._tree.depth)
            if self._is_over(lent):
                self._offer(self._open(), lent, None)
                return
            self._offer(rows, lent, None)

    def _is_over(self, lent: Bools) -> bool:
        """True if no waiting job can start, so that the order of asking does not matter."""
        if Controls.TIER in self._controls or lent.any():
            return False
        least = min(self._needs[row] for row in np.flatnonzero(self._open()).tolist())
        return least > self._view.free.room() + SLACK

    def _tell_waiting(self, rows: Bools) -> None:
        for row in map(int, np.flatnonzero(rows)):
            job = self._view.job(row)
            quota = self._rule.own.get(job.tenant, 0.0)
            numbers = {"tenant": job.tenant, "quota": quota}
            self.reasons[job.id] = Reason(Blocker.GUARANTEE, numbers)


def without_swaps(view: View, plan: Plan) -> Plan:
    """The plan without such stops and starts, if it can be carried out without them.

    Nothing is won by a swap, and a restart is lost.
    """
    changes = dict(plan.changes)
    rows = {job: view.table.row(job) for job in changes}
    starts = [job for job, to in changes.items() if to and view.holds(job) is None]
    for job in [job for job, to in changes.items() if to is None]:
        like = [name for name in starts if rows[name] > rows[job]]
        like = [name for name in like if _are_alike(view.job(rows[name]), view.job(rows[job]))]
        if like:
            starts.remove(like[0])
            del changes[job], changes[like[0]]
    if len(changes) == len(plan.changes):
        return plan
    kept = {job: why for job, why in plan.reasons.items() if job in changes or job not in rows}
    mark = view.free.mark()
    fits = carry_out(view, Plan(changes))
    view.free.rollback(mark)
    return replace(plan, changes=changes, reasons=kept) if fits else plan


def _are_alike(job: Job, other: Job) -> bool:
    """Return true if jobs ask for the same, for as long, with the same right to it."""
    asks, others = ((j.demand, j.hints, j.tenant, j.priority, j.tier) for j in (job, other))
    return asks == others and job.deadline == other.deadline
