"""A policy asked about some of the jobs, beside what all others hold.

What the others hold is taken in the ledger. Policies that try places there see it; those that count
machines do not, and would promise it a second time. They are asked again on a cluster from which
the others' devices have been cut out: what they count there is what there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from weft.core.errors import PlanError
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, JobId, NodeId, Sharing, Slice, Tier
from weft.core.plan.about import Controls
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.state.capacity import EPS, Capacity
from weft.core.state.table import Bools
from weft.stack.ask_policy import ask

Device = tuple[int, int]


def decide_among(policy: Policy, part: View) -> Plan:
    """The policy's decision for the rows of `part`; whatever it promises is there.

    The ledger is left as it was. A plan that could not be carried out in either way changes
    nothing.
    """
    mark = part.free.mark()
    try:
        plan: Plan | None = ask(policy, part)
    except PlanError:
        plan = None
    finally:
        part.free.rollback(mark)
    if plan is not None and fits(part, plan):
        return plan
    cut = cut_out(part, host=Controls.HOST in policy.about.controls)
    plan = cut.to_real_devices(ask(policy, cut.view))
    return plan if fits(part, plan) else replace(plan, changes={})


def cut_out(part: View, *, host: bool = False) -> Cut:
    """The rows on nodes that have only the devices that they hold or that are free.

    A row that shares a device with a job that is not shown stays as it is, out of sight. Devices
    of hidden opportunistic jobs are free, unless one of the rows shares nothing. With `host` CPUs
    and memory are what is left of them, else each device's equal part.
    """
    part = part.restrict(_apart(part))
    ours = _devices(part)
    alone = any(not job.shareable for job in part.table.jobs)
    free = part.free.empty_mask if alone else part.free.idle_mask
    nodes, numbers = [], {}
    for i, node in enumerate(part.cluster.nodes):
        mask = free(i) | ours.get(i, 0)
        devices = tuple(gpu for gpu in range(node.gpus) if mask >> gpu & 1)
        if not devices:
            continue
        numbers[node.id] = devices
        cpus, mem = _host(part, i) if host else (node.cpus, node.mem_gb)
        share = 1.0 if host else len(devices) / node.gpus
        nodes.append(replace(node, gpus=len(devices), cpus=cpus * share, mem_gb=mem * share))
    return Cut(part, Cluster(tuple(nodes), part.cluster.name), numbers, host=host)


@dataclass(frozen=True)
class Cut:
    """A part of a cluster as a cluster of its own; `numbers` are its devices' real ones."""

    part: View
    cluster: Cluster
    numbers: dict[NodeId, tuple[int, ...]]
    host: bool

    @property
    def view(self) -> View:
        table = self.part.table.pick(np.ones(len(self.part.table), dtype=bool))
        free = Capacity(self.cluster)
        for row, on in enumerate(table.allocations):
            if on is not None:
                table.allocations[row] = inside = self._inside(on, free)
                free.take(inside)
        free.commit()
        return replace(self.part, table=table, cluster=self.cluster, free=free)

    def to_real_devices(self, plan: Plan) -> Plan:
        """The plan in the devices' real numbers; a change that is none is left out."""
        changes: dict[JobId, Allocation | None] = {}
        free = Capacity(self.cluster)
        for job, to in plan.changes.items():
            was = self.part.holds(job)
            real = None if to is None else self._outside(to, free)
            if real != was:
                changes[job] = real
        return replace(plan, changes=changes)

    def _inside(self, on: Allocation, free: Capacity) -> Allocation:
        slices = []
        for part in on.slices:
            numbers = self.numbers[part.node]
            gpus = tuple(numbers.index(gpu) for gpu in part.gpus)
            slices.append(self._like(part, gpus, on.sharing, self.part.free, free))
        return replace(on, slices=tuple(slices))

    def _outside(self, on: Allocation, free: Capacity) -> Allocation:
        slices = []
        for part in on.slices:
            gpus = tuple(self.numbers[part.node][gpu] for gpu in part.gpus)
            slices.append(self._like(part, gpus, on.sharing, free, self.part.free))
        return replace(on, slices=tuple(slices))

    def _like(
        self, part: Slice, gpus: tuple[int, ...], sharing: Sharing, here: Capacity, there: Capacity
    ) -> Slice:
        """A slice with other numbers; a slice with the host's usual part has it there as well."""
        if not self.host and part == _usual(here, part.node, part.gpus, sharing):
            return _usual(there, part.node, gpus, sharing)
        return replace(part, gpus=gpus)


def _usual(free: Capacity, node: NodeId, gpus: tuple[int, ...], sharing: Sharing) -> Slice:
    return free.slice_of(free.cluster.index[node], sum(1 << gpu for gpu in gpus), sharing.share)


def _apart(part: View) -> Bools:
    """Rows that hold no device together with a job that is not among the rows."""
    claims: dict[Device, float] = {}
    for row in range(len(part.table)):
        for device, share in _claims(part, row):
            claims[device] = claims.get(device, 0.0) + share
    keep = np.ones(len(part.table), dtype=bool)
    mixed = {d for d, claim in claims.items() if part.free.claimed(*d) > claim + EPS}
    while mixed:
        for row in map(int, np.flatnonzero(keep)):
            devices = [device for device, _ in _claims(part, row)]
            if not mixed.isdisjoint(devices):
                keep[row] = False
                fresh = set(devices) - mixed
                mixed |= fresh
                if fresh:
                    break
        else:
            break
    return keep


def _claims(part: View, row: int) -> list[tuple[Device, float]]:
    on = part.allocation(row)
    if on is None:
        return []
    share = 0.0 if on.sharing.tier is Tier.OPPORTUNISTIC else on.sharing.share
    index = part.cluster.index
    return [((index[s.node], gpu), share) for s in on.slices for gpu in s.gpus]


def _devices(part: View) -> dict[int, int]:
    """Bit masks of the devices that rows hold, by node."""
    devices: dict[int, int] = {}
    for row in range(len(part.table)):
        for (node, gpu), _ in _claims(part, row):
            devices[node] = devices.get(node, 0) | 1 << gpu
    return devices


def _host(part: View, node: int) -> tuple[float, float]:
    """CPUs and memory of a node that these rows hold or that are free."""
    cpus, mem = part.free.host(node)
    name = part.cluster.nodes[node].id
    for on in part.table.allocations:
        for piece in () if on is None else on.slices:
            if piece.node == name:
                cpus, mem = cpus + piece.cpus, mem + piece.mem_gb
    return max(cpus, 0.0), max(mem, 0.0)


def fits(view: View, plan: Plan) -> bool:
    """True if the ledger has all that a plan promises, and no job joins one that does not share.

    For plans of a policy that was shown a part of what runs: one that counts machines instead
    of what is free may promise what hidden jobs hold.
    """
    if _joins_who_shares_nothing(view, plan):
        return False
    mark = view.free.mark()
    try:
        return carry_out(view, plan)
    finally:
        view.free.rollback(mark)


def _joins_who_shares_nothing(view: View, plan: Plan) -> bool:
    """True if a job that shares nothing would be beside an opportunistic one, and one is hidden.

    Any two others find no room on one device in the ledger.
    """
    ours = [(view.job(view.table.row(job)), to) for job, to in plan.changes.items() if to]
    hidden = [(job, on) for job, _, on in view.held_out_of_sight()]
    for some, others in ((ours, hidden), (hidden, ours)):
        loose = devices_of(on for _, on in some if on.sharing.tier is Tier.OPPORTUNISTIC)
        if not loose.isdisjoint(devices_of(on for job, on in others if not job.shareable)):
            return True
    return False


def devices_of(allocations: Iterable[Allocation]) -> set[tuple[NodeId, int]]:
    """Every device that one of these is on."""
    return {(part.node, gpu) for on in allocations for part in on.slices for gpu in part.gpus}


def carry_out(view: View, plan: Plan) -> bool:
    """Change the view's ledger as the plan says; False where that cannot be done."""
    view.release(plan.changes)
    try:
        for to in plan.changes.values():
            if to is not None:
                view.free.take(to)
    except PlanError:
        return False
    return True
