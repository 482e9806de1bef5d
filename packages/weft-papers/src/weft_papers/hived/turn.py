"""One decision: where cells are, what each virtual cluster's policy wants, which jobs give way."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np

from weft.core.errors import PlanError
from weft.core.model.gang_nodes import keeps_nodes
from weft.core.model.job import Allocation, Job, JobId, Or, Tier
from weft.core.plan.about import Controls
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker, Reason, asks_for, describe_demand
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.table import Bools
from weft.pieces.wrap.promise import keep_promises
from weft.pieces.wrap.sub_cluster import decide_among
from weft.stack.ask_policy import ask
from weft_papers.hived.assignment import CellLayout
from weft_papers.hived.bindings import CellBindings, Device, read_place, write_places
from weft_papers.hived.virtual import CellOccupancy, VirtualCluster

Asked = tuple[str, float | None]  # how a virtual cluster stood, and when to ask again
IDLE = ""  # under which the policy's memory about opportunistic jobs is kept


class HivedDecision:
    """Everything that one decision of `hived` needs; `settle` comes first."""

    def __init__(
        self,
        policy: Policy,
        view: View,
        layout: CellLayout,
        memory: Mapping[str, object],
        asked: Mapping[str, Asked],
        explained: Mapping[JobId, str],
    ) -> None:
        self._policy, self._view, self._layout = policy, view, layout
        self.memory = dict(memory)
        self.asked = dict(asked)
        self._explained = explained
        self.reasons: dict[JobId, Reason] = {}
        self._changes: dict[JobId, Allocation | None] = {}
        self._texts: dict[JobId, str] = {}
        self._words: dict[JobId, Blocker] = {}
        self._facts: dict[JobId, Mapping[str, object]] = {}
        self._rejected: dict[JobId, str] = {}
        self._promised: frozenset[JobId] = frozenset()
        self._wake = inf
        self._tenants = layout.by_tenant
        self._held = CellOccupancy(view, layout)
        self._guests: dict[int, Allocation] = {}
        self._stuck: list[int] = []  # rows outside their cells that may not be stopped
        self._bindings = CellBindings(layout, self._held.free_cells())

    def is_guaranteed(self, job: Job) -> bool:
        """Return true if a job runs in its tenant's own cells."""
        return job.tenant in self._tenants and (job.tier is Tier.GUARANTEED or not job.stoppable)

    # ---- where cells are

    def bind_running(self, bound: Mapping[str, str], last: Mapping[str, str]) -> None:
        """Bind what is in use as it was; find places for running jobs that were not known."""
        bindings, owned = self._bindings, self._layout.by_name
        used = self._used_devices()
        for places, known in ((bound, True), (last, False)):
            for name, text in places.items():
                owner = owned.get(name)
                cell = None if owner is None else read_place(self._layout, owner, text)
                if owner is None or cell is None or name in bindings.bound:
                    continue
                chain = self._layout.chains[owner.chain]
                here = used.get(owner.tenant, {}).get(owner.chain, ())
                use = known and any(device in here for device in chain.devices(cell))
                if not use or not bindings.bind_at(owner, cell):
                    bindings.last[name] = cell
        for row, devices in self._held.rows.items():
            own = self.is_guaranteed(self._view.job(row)) and self._adopt(row, devices)
            if not own:
                self._note_guest(row)
        self._spoil()

    def _used_devices(self) -> dict[str, dict[int, set[int]]]:
        """Devices by tenant and chain that its guaranteed jobs, or unknown ones, hold."""
        used_devices: dict[str, dict[int, set[int]]] = {t: defaultdict(set) for t in self._tenants}
        for row, devices in self._held.rows.items():
            job = self._view.job(row)
            if self.is_guaranteed(job):
                for chain, device in devices:
                    used_devices[job.tenant][chain].add(device)
        for chain, device in self._held.blocked_devices():
            for tenant in used_devices:
                used_devices[tenant][chain].add(device)
        return used_devices

    def _adopt(self, row: int, devices: list[Device]) -> bool:
        """Bind cells around a job that runs; False if its tenant has none that would do."""
        tenant, bindings = self._view.job(row).tenant, self._bindings
        known: tuple[int, range] = (-1, range(0))
        for chain, device in devices:
            if chain == known[0] and device in known[1]:
                continue
            owner = bindings.owner_at(chain, device)
            if owner is not None and owner.tenant == tenant:
                place = bindings.bound[owner.name]
                known = chain, self._layout.chains[chain].devices(place)
                continue
            if owner is not None or not self._adopt_device(tenant, chain, device):
                return False
        return True

    def _adopt_device(self, tenant: str, chain: int, device: int) -> bool:
        bindings, cells = self._bindings, self._layout.chains[chain]
        free = [c for c in bindings.of(tenant) if c.chain == chain and c.name not in bindings.bound]
        for cell in sorted(free, key=lambda c: -c.level):
            place = cells.at(cell.level, device)
            if place is not None and bindings.bind_at(cell, place):
                return True
        return False

    def _note_guest(self, row: int) -> None:
        """A job on cells that are not its own: it gives way, or if it may not, is in the way."""
        on = self._view.allocation(row)
        assert on is not None
        if self._view.job(row).stoppable:
            self._guests[row] = on
            for chain, device in self._held.rows[row]:
                self._bindings.borrowed.setdefault(chain, []).append(device)
            return
        self._stuck.append(row)
        self._held.hold_for_good(on)

    def _spoil(self) -> None:
        for devices in self._bindings.borrowed.values():
            devices.sort()
        for chain, device in self._held.blocked_devices():
            self._bindings.free[chain].mark_bad(device)

    def bound_places(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the places of bound cells and of those bound before, for memory."""
        bindings = self._bindings
        bound = {n: c for n, c in bindings.bound.items() if n not in bindings.doomed}
        last = {n: c for n, c in bindings.last.items() if n not in bound}
        return write_places(self._layout, bound), write_places(self._layout, last)

    # ---- running jobs

    def plan_all(self) -> Plan:
        """Every virtual cluster, then the jobs that take idle cells."""
        jobs = self._view.table.jobs
        outside = np.zeros(len(jobs), dtype=bool)
        outside[[*self._guests, *self._stuck]] = True
        firm = np.array([self.is_guaranteed(job) for job in jobs], dtype=bool) & ~outside
        owner = np.array([job.tenant for job in jobs], dtype=object)
        for tenant in self._tenants:
            rows = firm & (owner == tenant)
            self._bindings.unbind_bad(tenant)
            if not rows.any():
                continue
            self._reject(tenant, rows)
            if rows.any() and self._is_due(tenant, rows):
                self._decide(tenant, rows)
        others = ~firm & self._may_borrow()
        self._decline(others)
        if others.any():
            self._lend(others)
        wake = None if self._wake == inf else self._wake
        plan = Plan(self._changes, self._rejected, wake, self._texts, None, self._words)
        return replace(plan, promised=self._promised, facts=self._facts)

    def _may_borrow(self) -> Bools:
        """Rows of jobs that may be stopped: no other jobs are let into others' cells."""
        return self._view.preemptible()

    def _reject(self, tenant: str, rows: Bools) -> None:
        """Jobs that are larger than all that the virtual cluster can ever have."""
        room = self._layout.gpus_by_kind[tenant]
        for row in np.flatnonzero(rows & self._view.waiting()).tolist():
            job = self._view.job(row)
            most = max((room.get(kind, 0) for kind in job.demand.kinds or room), default=0)
            if self._least(job) > most and not self._layout.problems:
                asks = self._asks(job)
                self._rejected[job.id] = (
                    f"it asks for {asks}; the virtual cluster of tenant {tenant!r} has {most}"
                )
                rows[row] = False

    def _least(self, job: Job) -> int:
        """The fewest GPUs that the policy inside may give a job."""
        resizes = Controls.COUNT in self._policy.about.controls
        return job.demand.min if resizes else job.demand.gpus

    def _asks(self, job: Job) -> str:
        return describe_demand(job.demand, self._least(job), self._view.cluster.kinds)

    def _is_due(self, tenant: str, rows: Bools) -> bool:
        """Return true if the policy must be asked: the virtual cluster changed, or it is time.

        A private cluster would not have been, and some policies decide otherwise if asked more
        often.
        """
        before = self.asked.get(tenant)
        if self._policy.about.every is not None or self._held.blocked or before is None:
            return True
        digest, wake = before
        if wake is not None and self._view.now >= wake:
            return True
        if digest != self._digest(tenant, rows, self._view.running()[rows]):
            return True
        self._wake = min(self._wake, inf if wake is None else wake)
        for row in np.flatnonzero(rows & self._view.waiting()).tolist():
            name = self._view.job(row).id
            if (text := self._explained.get(name)) is not None:
                self.reasons[name] = Reason(Blocker.CELLS, said=text)
        return False

    def _digest(self, tenant: str, rows: Bools, runs: Bools) -> str:
        """Jobs, which of them run, which failed when, and which machines there are."""
        table, bindings = self._view.table, self._bindings
        own = VirtualCluster(tenant, self._view, bindings, self._held.hosts)
        digest = hashlib.blake2b(digest_size=16)
        digest.update(table.seq[rows].tobytes())
        digest.update(runs.tobytes())
        digest.update(table.column(TableColumns.FAILED)[rows].tobytes())
        digest.update("|".join(own.away_nodes).encode())
        return digest.hexdigest()

    def _decide(self, tenant: str, rows: Bools) -> None:
        """Ask the policy inside; again without cells for which no hardware is found."""
        lost: set[str] = set()
        memory = self.memory.get(tenant)
        for _ in range(len(self._bindings.of(tenant)) + 1):
            own = VirtualCluster(tenant, self._view, self._bindings, self._held.hosts, lost)
            part = own.tenant_view(rows, self._held.blocked, memory)
            plan = ask(keep_promises(self._policy, self._view), part)
            missing = [cell for cell in own.used_by(plan) if not self._bindings.bind(cell)]
            if not missing:
                break
            lost |= {cell.name for cell in missing}
        else:
            plan = Plan(memory=memory)
        changes = self._keep_nodes(own.outside(plan))
        if self._carry_out(tenant, changes):
            self.memory[tenant] = plan.memory
            self._adopt_plan(plan)
        runs = self._runs_after(rows)
        self.asked[tenant] = self._digest(tenant, rows, runs), plan.wake_at
        if self._held.blocked:  # when they leave, there is room that it did not know of
            del self.asked[tenant]
        self._explain(tenant, rows, own)

    def _keep_nodes(
        self, changes: Mapping[JobId, Allocation | None]
    ) -> dict[JobId, Allocation | None]:
        """Without gangs that ask for a number of nodes and whose cells are on fewer."""
        demand = {job: self._view.job(self._view.table.row(job)).demand for job in changes}
        return {
            job: to for job, to in changes.items() if to is None or keeps_nodes(demand[job], to)
        }

    def _carry_out(self, tenant: str, changes: Mapping[JobId, Allocation | None]) -> bool:
        """Change the ledger, with guests out of the way; False if that cannot be done."""
        view = self._view
        mark = view.free.mark()
        taken = {d for to in changes.values() if to is not None for d in self._held.devices(to)}
        gone = [row for row in self._guests if not taken.isdisjoint(self._held.rows[row])]
        for job in changes:
            if (was := view.holds(job)) is not None:
                view.free.give(was)
        for row in gone:
            view.free.give(self._guests[row])
        try:
            for to in changes.values():
                if to is not None:
                    view.free.take(to)
        except PlanError:
            view.free.rollback(mark)
            return False
        self._changes |= changes
        for row in gone:
            self._give_way(row, tenant)
        return True

    def _give_way(self, row: int, tenant: str) -> None:
        view = self._view
        on = self._guests.pop(row)
        job = view.job(row)
        self._changes[job.id] = None
        numbers = {
            "gpus": asks_for(on.gpus, (view.cluster.kind_of(on),), on.sharing.share),
            "to": repr(tenant),
            "minutes": (view.now - view.table.get(row, TableColumns.RAN_SINCE)) / 60.0,
        }
        self.reasons[job.id] = Reason(Blocker.RECLAIMED, numbers)

    def _adopt_plan(self, plan: Plan) -> None:
        if plan.wake_at is not None:
            self._wake = min(self._wake, plan.wake_at)
        self._rejected |= dict(plan.rejected)
        self._promised |= plan.promised
        self._texts |= dict(plan.reasons)
        self._words |= dict(plan.blockers)
        self._facts |= dict(plan.facts)

    def _explain(self, tenant: str, rows: Bools, own: VirtualCluster) -> None:
        """Jobs that wait although the machines may have room: their own cells have none."""
        view, owned = self._view, self._bindings.of(tenant)
        has = sum(self._layout.chains[cell.chain].sizes[cell.level] for cell in owned)
        here = own.cluster.gpus
        held = sum(on.counted_gpus for on in self._after(rows))
        away = f", {has - here} are on machines that are away" if here < has else ""
        for row in np.flatnonzero(rows & view.waiting()).tolist():
            job = view.job(row)
            if job.id in self._changes or job.id in self._rejected or job.id in self._texts:
                continue
            asks = self._asks(job)
            numbers = {"asks": asks, "tenant": tenant, "held": held, "own": has, "away": away}
            self.reasons[job.id] = Reason(Blocker.CELLS, numbers)

    def _runs_after(self, rows: Bools) -> Bools:
        runs = self._view.running()
        for row in np.flatnonzero(rows).tolist():
            job = self._view.job(row).id
            if job in self._changes:
                runs[row] = self._changes[job] is not None
        return runs[rows]

    def _after(self, rows: Bools) -> list[Allocation]:
        allocations = []
        for row in np.flatnonzero(rows).tolist():
            job = self._view.job(row).id
            on = self._changes[job] if job in self._changes else self._view.allocation(row)
            allocations += [] if on is None else [on]
        return allocations

    # ---- jobs that take idle cells

    def _decline(self, rows: Bools) -> None:
        """Guests that ask for a promise: owners may take back what they run on at any time."""
        view = self._view
        new = rows & view.waiting() & (view.ran() == 0.0)
        for row in np.flatnonzero(new).tolist() if view.promises else ():
            job = view.job(row)
            if job.deadline_or is Or.DECLINE:
                self._rejected[job.id] = self._no_promise(job)
                rows[row] = False

    def _lend(self, rows: Bools) -> None:
        view = self._view
        table = view.table.pick(rows)
        for job, to in self._changes.items():
            if to is None and (row := table.find(job)) is not None:
                table.release(row, view.now)
        part = replace(view, table=table, memory=self.memory.get(IDLE))
        plan = decide_among(self._policy, part)
        self.memory[IDLE] = plan.memory
        self._changes |= dict(plan.changes)
        for job in plan.changes:
            self.reasons.pop(job, None)
        self._adopt_plan(plan)
        for row, borrower in enumerate(table.jobs):
            starts = table.allocations[row] is None and plan.changes.get(borrower.id) is not None
            if view.promises and starts and borrower.deadline_or is not Or.UNSAID:
                self._texts[borrower.id] = self._no_promise(borrower)
            waits = table.allocations[row] is None and plan.changes.get(borrower.id) is None
            if waits and borrower.id not in self._texts:
                why = Reason(Blocker.IDLE_CELLS, {"asks": self._asks(borrower)})
                self.reasons.setdefault(borrower.id, why)

    def _no_promise(self, job: Job) -> str:
        own = job.tenant in self._tenants
        why = "it is opportunistic" if own else f"tenant {job.tenant!r} has no cells of its own"
        return f"no deadline can be promised: {why}"
