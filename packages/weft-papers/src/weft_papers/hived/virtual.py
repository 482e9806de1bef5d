"""A virtual cluster as a cluster of its own: what a policy inside it is shown, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, JobId, NodeId, Slice
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.table import Bools
from weft_papers.hived.assignment import CellLayout, Owned, Seat
from weft_papers.hived.bindings import CellBindings, Device
from weft_papers.hived.cells import FreeCells


@dataclass(frozen=True)
class VirtualCluster:
    """The cells of one tenant during one decision.

    `lost` are cells that no hardware could be found for just now.
    """

    tenant: str
    view: View
    bindings: CellBindings
    hosts: Mapping[int, Node]
    lost: Collection[str] = ()

    @property
    def _layout(self) -> CellLayout:
        return self.bindings.layout

    @cached_property
    def machines_by_name(self) -> dict[NodeId, Seat]:
        """Machines by name, those away left out."""
        every = self._layout.machines_by_name[self.tenant]
        if not self.lost and len(self._layout.home) == len(self.view.cluster.nodes):
            return every
        return {
            name: seat
            for name, seat in every.items()
            if seat.cell.name not in self.lost
            and seat.cell.chain in self.hosts
            and self._is_there(seat)
        }

    @property
    def away_nodes(self) -> list[NodeId]:
        """Machines of the tenant that are not there now."""
        return [
            name
            for name in self._layout.machines_by_name[self.tenant]
            if name not in self.machines_by_name
        ]

    @cached_property
    def cluster(self) -> Cluster:
        """The machines that a policy is shown."""
        return Cluster(
            tuple(self._machine(name, seat) for name, seat in self.machines_by_name.items()),
            f"{self.view.cluster.name}/{self.tenant}",
        )

    def tenant_view(self, rows: Bools, blocked: Mapping[int, int], memory: object) -> View:
        """The tenant's jobs on its machines; `blocked` devices are held by who is not shown."""
        table = self.view.table.pick(rows)
        free = Capacity(self.cluster)
        for row, on in enumerate(table.allocations):
            if on is not None:
                table.allocations[row] = inside = self._inside(on, free)
                free.take(inside)
        for name in self.machines_by_name if blocked else ():
            self._block(name, blocked, free)
        free.commit()
        return replace(self.view, table=table, cluster=self.cluster, free=free, memory=memory)

    def used_by(self, plan: Plan) -> list[Owned]:
        """Cells that a plan puts jobs into."""
        used: dict[str, Owned] = {}
        for to in plan.changes.values():
            for part in () if to is None else to.slices:
                cell = self.machines_by_name[part.node].cell
                used[cell.name] = cell
        return list(used.values())

    def outside(self, plan: Plan) -> dict[JobId, Allocation | None]:
        """A plan's changes on real devices; all its cells are bound by now."""
        inside, changes = Capacity(self.cluster), {}
        for job, to in plan.changes.items():
            real = None if to is None else self._outside(to, inside)
            if real != self.view.holds(job):
                changes[job] = real
        return changes

    # ---- inside

    def _is_there(self, seat: Seat) -> bool:
        if seat.cell.name not in self.bindings.bound:
            return True
        return self._real(seat)[0] in self.view.cluster.index

    def _real(self, seat: Seat) -> tuple[NodeId, int]:
        """The machine that a seat of a bound cell is on, and its first device there."""
        chain = self._layout.chains[seat.cell.chain]
        first = chain.first(self.bindings.bound[seat.cell.name])
        node, gpu = divmod(first + seat.part * chain.node_size, chain.node_size)
        return NodeId(self._layout.machines[seat.cell.chain][node][0]), gpu

    def _machine(self, name: NodeId, seat: Seat) -> Node:
        host = self.hosts[seat.cell.chain]
        chain = self._layout.chains[seat.cell.chain]
        gpus = min(chain.sizes[seat.cell.level], chain.node_size)
        share = gpus / host.gpus
        rack = seat.cell.name if seat.cell.level > chain.node_level else ""
        return replace(
            host,
            id=name,
            gpus=gpus,
            cpus=host.cpus * share,
            mem_gb=host.mem_gb * share,
            rack=rack,
            topology=host.topology if gpus == host.gpus else None,
            uplinks=(),
        )

    def _block(self, name: NodeId, blocked: Mapping[int, int], free: Capacity) -> None:
        seat = self.machines_by_name[name]
        if seat.cell.name not in self.bindings.bound:
            return
        node, first = self._real(seat)
        at = self.cluster.index[name]
        mask = blocked.get(self.view.cluster.index[node], 0) >> first
        mask &= free.idle_mask(at)
        if mask:
            gpus = tuple(gpu for gpu in range(self.cluster.nodes[at].gpus) if mask >> gpu & 1)
            free.take(Allocation((Slice(name, gpus),)))

    def _inside(self, on: Allocation, free: Capacity) -> Allocation:
        slices = []
        for part in on.slices:
            usual = part == _usual(self.view.free, part.node, part.gpus, on)
            for name, gpus in self._seats_of(part).items():
                like = _usual(free, name, gpus, on)
                share = len(gpus) / len(part.gpus)
                own = Slice(name, gpus, part.cpus * share, part.mem_gb * share)
                slices.append(like if usual else own)
        return replace(on, slices=tuple(slices))

    def _seats_of(self, part: Slice) -> dict[NodeId, tuple[int, ...]]:
        """Devices of a real slice by the virtual machine that they are."""
        chain_number, node = self._layout.home[part.node]
        chain = self._layout.chains[chain_number]
        seats: defaultdict[NodeId, list[int]] = defaultdict(list)
        for gpu in part.gpus:
            device = node * chain.node_size + gpu
            cell = self.bindings.owner_at(chain_number, device)
            assert cell is not None
            offset = device - chain.first(self.bindings.bound[cell.name])
            number, inner = divmod(offset, chain.node_size)
            one_only = self._layout.parts(cell) == 1
            name = NodeId(cell.name if one_only else f"{cell.name}.{number}")
            seats[name].append(inner)
        return {name: tuple(gpus) for name, gpus in seats.items()}

    def _outside(self, on: Allocation, inside: Capacity) -> Allocation:
        """Slices by real machine: two cells may be on one."""
        gpus: defaultdict[NodeId, list[int]] = defaultdict(list)
        host: defaultdict[NodeId, list[float]] = defaultdict(lambda: [0.0, 0.0])
        usual = True
        for part in on.slices:
            node, first = self._real(self.machines_by_name[part.node])
            gpus[node] += [first + gpu for gpu in part.gpus]
            host[node][0] += part.cpus
            host[node][1] += part.mem_gb
            usual = usual and part == _usual(inside, part.node, part.gpus, on)
        slices = tuple(
            _usual(self.view.free, node, tuple(sorted(held)), on)
            if usual
            else Slice(node, tuple(sorted(held)), *host[node])
            for node, held in gpus.items()
        )
        return replace(on, slices=slices)


def _usual(free: Capacity, node: NodeId, gpus: tuple[int, ...], on: Allocation) -> Slice:
    mask = sum(1 << gpu for gpu in gpus)
    return free.slice_of(free.cluster.index[node], mask, on.sharing.share)


# ---- Which jobs hold which devices as a decision begins, in the numbers of cells


class CellOccupancy:
    """Devices of every running row, and those of jobs that are not shown.

    `blocked` are bit masks by position of a node in the cluster. `hosts` is a machine of each
    chain, the one with the smallest host: what any cell can count on.
    """

    def __init__(self, view: View, layout: CellLayout) -> None:
        self._view, self._layout = view, layout
        self.rows: dict[int, list[Device]] = {}
        for row in np.flatnonzero(view.running()).tolist():
            on = view.allocation(row)
            assert on is not None
            self.rows[row] = self.devices(on)
        self.blocked = self._find_blocked()
        self.hosts = self._find_hosts()

    def devices(self, on: Allocation) -> list[Device]:
        """The devices of an allocation, on machines that are known."""
        devices: list[Device] = []
        for part in on.slices:
            chain, node = self._layout.home[part.node]
            first = node * self._layout.chains[chain].node_size
            devices += [(chain, first + gpu) for gpu in part.gpus]
        return devices

    def hold_for_good(self, on: Allocation) -> None:
        """Count what a job holds as held for good."""
        for part in on.slices:
            node = self._view.cluster.index[part.node]
            mask = sum(1 << gpu for gpu in part.gpus)
            self.blocked[node] = self.blocked.get(node, 0) | mask

    def blocked_devices(self) -> Iterator[Device]:
        """Devices that cannot be had."""
        for i, mask in self.blocked.items():
            node = self._view.cluster.nodes[i]
            chain, number = self._layout.home[node.id]
            first = number * self._layout.chains[chain].node_size
            yield from ((chain, first + gpu) for gpu in range(node.gpus) if mask >> gpu & 1)

    def free_cells(self) -> list[FreeCells]:
        """All cells of each chain, those of machines that are away marked bad."""
        here = self._view.cluster.index
        all_here = len(self._layout.home) == len(here)
        free = []
        for chain, machines in zip(self._layout.chains, self._layout.machines, strict=True):
            away = () if all_here else enumerate(machines)
            bad = [i for i, machine in away if machine[0] not in here]
            free.append(FreeCells(chain, bad))
        return free

    def _find_blocked(self) -> dict[int, int]:
        view = self._view
        shown: defaultdict[int, int] = defaultdict(int)
        for on in view.table.allocations:
            for part in () if on is None else on.slices:
                at = view.cluster.index[part.node]
                for gpu in part.gpus:
                    shown[at] |= 1 << gpu
        held = sum(mask.bit_count() for mask in shown.values())
        if sum(view.free.idle_by_kind()) + held == view.cluster.gpus:
            return {}
        blocked = {}
        for i, node in enumerate(view.cluster.nodes):
            mask = ((1 << node.gpus) - 1) & ~view.free.idle_mask(i) & ~shown[i]
            if mask:
                blocked[i] = mask
        return blocked

    def _find_hosts(self) -> dict[int, Node]:
        """A machine of each chain that is here, with the smallest host of all."""
        hosts: dict[int, Node] = {}
        nodes, index = self._view.cluster.nodes, self._view.cluster.index
        for chain, machines in enumerate(self._layout.machines):
            here = next((index[NodeId(m[0])] for m in machines if m[0] in index), None)
            if here is not None:
                cpus, mem_gb = self._layout.least_host[chain]
                hosts[chain] = replace(nodes[here], cpus=cpus, mem_gb=mem_gb)
        return hosts
