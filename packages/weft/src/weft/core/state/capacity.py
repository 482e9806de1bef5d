"""The ledger of capacity that is not promised to any job.

Nodes are indexed by how many of their devices are wholly free, as bit sets, so that best fit
costs the number of different counts, not the number of nodes. Trials are cheap: `mark`, change
what you like, `rollback`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from weft.core.errors import InvalidConfig, PlanError
from weft.core.model.cluster import Cluster
from weft.core.model.job import EXCLUSIVE, Allocation, Sharing, Slice, Tier
from weft.core.state.whole_devices import (
    WHOLE,
    LedgerParts,
    are_free,
    bits_of,
    count_parts,
    drop_highest_bits,
    find_repeated_node,
    give_whole,
    is_sound,
    move_host,
    set_mask,
    take_whole,
    walk_bits,
)
from weft.plural import say_gpus

EPS = 1e-9
RESIDENTS = 4  # opportunistic jobs on one device at most
SLACK = count_parts(EPS)


class Capacity:
    """The capacity of a cluster that is left after every promise."""

    __slots__ = (
        "_bits",
        "_claimed",
        "_claims",
        "_fitting",
        "_host",
        "_hosted",
        "_idle",
        "_mask",
        "_memory",
        "_parts",
        "_pool",
        "_residents",
        "_slices",
        "_undo",
        "cluster",
        "kinds",
    )

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kinds = cluster.kinds
        pool_of = {kind: i for i, kind in enumerate(self.kinds)}
        self._pool = [pool_of[node.kind] for node in cluster.nodes]
        full = [(1 << node.gpus) - 1 for node in cluster.nodes]
        self._mask = list(full)
        self._idle = [cluster.gpus_by_kind[kind] for kind in self.kinds]
        self._bits = [[0] * (cluster.node_size(kind) + 1) for kind in self.kinds]
        for i, node in enumerate(cluster.nodes):
            self._bits[self._pool[i]][node.gpus] |= 1 << i
        self._claims: dict[tuple[int, int], int] = {}
        self._claimed = 0
        self._residents: dict[tuple[int, int], int] = {}
        self._memory: dict[tuple[int, int], int] = {}
        empty = [(node.cpus, node.mem_gb) for node in cluster.nodes]
        self._host = list(empty)
        self._parts = LedgerParts(
            cluster.index,
            self._pool,
            full,
            self._mask,
            self._bits,
            self._idle,
            empty,
            self._host,
            self._residents,
        )
        # What jobs without devices were promised, in whole parts of a core and of a GB.
        self._hosted: dict[int, tuple[int, int]] = {}
        self._slices: dict[tuple[int, int], Slice] = {}
        self._undo: list[tuple[bool, Allocation]] = []
        self._fitting: Allocation | None = None  # seen to fit since anything moved

    # ---- reading

    def idle(self, kind: str | None = None) -> int:
        """Wholly free devices, of one kind or of all."""
        return sum(self._idle) if kind is None else self._idle[self.kinds.index(kind)]

    def room(self) -> float:
        """GPUs left in total, the free parts of shared devices included."""
        return sum(self._idle) + (len(self._claims) * WHOLE - self._claimed) / WHOLE

    def idle_by_kind(self) -> list[int]:
        """Wholly free devices of each kind, in the order of `kinds`."""
        return list(self._idle)

    def on(self, node: int) -> int:
        """Wholly free devices of one node, by its position in the cluster."""
        return self._mask[node].bit_count()

    def idle_mask(self, node: int) -> int:
        """Idle devices of a node as a bit mask of their numbers."""
        return self._mask[node]

    def empty_mask(self, node: int) -> int:
        """Devices of a node that not even opportunistic jobs are on, as a bit mask."""
        return self._mask[node] & ~sum(1 << gpu for at, gpu in self._residents if at == node)

    def claimed(self, node: int, gpu: int) -> float:
        """The part of a device that guaranteed jobs have been promised, from 0 to 1."""
        if self._mask[node] >> gpu & 1:
            return 0.0
        return self._claims.get((node, gpu), WHOLE) / WHOLE

    def best_fit(self, kind: str, count: int) -> int | None:
        """The node with the fewest free devices that still has `count`; None if there is none."""
        bits = self._bits[self.kinds.index(kind)]
        for free in range(count, len(bits)):
            if bits[free]:
                return (bits[free] & -bits[free]).bit_length() - 1
        return None

    def nodes_with(self, kind: str, free: int) -> Iterator[int]:
        """The nodes with exactly `free` free devices now, in order; costs what is walked."""
        return walk_bits(self._bits[self.kinds.index(kind)][free])

    def count_nodes_with(self, kind: str, free: int) -> int:
        """The number of nodes with exactly `free` free devices."""
        return self._bits[self.kinds.index(kind)][free].bit_count()

    def with_room(self, kind: str, share: float) -> list[tuple[int, int]]:
        """Partly claimed (node, device) pairs that have room for `share`, fullest first."""
        pool = self.kinds.index(kind)
        most = WHOLE + SLACK - count_parts(share)
        devices = [
            (-claim, node, gpu)
            for (node, gpu), claim in self._claims.items()
            if self._pool[node] == pool and claim <= most
        ]
        return [(node, gpu) for _, node, gpu in sorted(devices)]

    def claimed_gb(self, node: int, gpu: int) -> float:
        """Memory of a device that is promised, in GB."""
        return self._memory.get((node, gpu), 0) / WHOLE

    def host(self, node: int) -> tuple[float, float]:
        """CPU cores and GB of memory of a node that are not promised."""
        return self._host[node]

    def hosted(self, node: int) -> tuple[float, float]:
        """CPU cores and GB of memory of a node that jobs without devices were promised."""
        cpus, mem_gb = self._hosted.get(node, (0, 0))
        return cpus / WHOLE, mem_gb / WHOLE

    def hosts(self) -> list[tuple[float, float]]:
        """CPU cores and GB of memory that are not promised, of every node in order."""
        return list(self._host)

    def set_hosts(self, left: Sequence[tuple[float, float]]) -> None:
        """As `hosts` gave it: sums of fractions depend on their order, so they are kept."""
        if len(left) != len(self._host):
            raise InvalidConfig(f"{len(left)} hosts, but there are {len(self._host)} nodes")
        self._host[:] = [(cpus, mem_gb) for cpus, mem_gb in left]

    def opening(self, kind: str, count: int) -> list[int]:
        """Nodes to open for `count` devices: the one they fit best, else the emptiest first."""
        if count <= 0:
            return []
        if (node := self.best_fit(kind, count)) is not None:
            return [node]
        nodes: list[int] = []
        for free in range(self.cluster.node_size(kind), 0, -1):
            for node in self.nodes_with(kind, free):
                if count <= 0:
                    return nodes
                nodes.append(node)
                count -= free
        return nodes

    def fits(self, allocation: Allocation) -> bool:
        """True if all of an allocation could be promised now."""
        return not self.objection(allocation)

    # ---- building

    def slice(self, node: int, count: int, share: float = 1.0) -> Slice:
        """The first `count` free devices of a node, with their part of the host.

        PlanError if there are fewer.
        """
        mask = self._mask[node]
        if (extra := mask.bit_count() - count) < 0:
            name = self.cluster.nodes[node].id
            raise PlanError(f"{name} has {say_gpus(mask.bit_count())} free, not {count}")
        return self.slice_of(node, drop_highest_bits(mask, extra) if extra else mask, share)

    def slice_of(self, node: int, devices: int, share: float = 1.0) -> Slice:
        """The devices of a bit mask, with the host in proportion to devices and share."""
        if share == 1.0:
            known = self._slices.get((node, devices))
            if known is not None:
                return known
        machine = self.cluster.nodes[node]
        gpus = tuple(i for i in range(machine.gpus) if devices >> i & 1)
        part = len(gpus) * share / machine.gpus
        made = Slice(machine.id, gpus, machine.cpus * part, machine.mem_gb * part)
        if share == 1.0:
            self._slices[node, devices] = made
        return made

    # ---- changing

    def take(self, allocation: Allocation) -> None:
        """Promise an allocation; PlanError if any of it is not there."""
        if not take_whole(self._parts, allocation, EXCLUSIVE):
            if objection := self.objection(allocation):
                raise PlanError(objection)
            self._move(allocation, taking=True)
        self._fitting = None
        self._undo.append((True, allocation))

    def give(self, allocation: Allocation) -> None:
        """Take a promise back."""
        if not give_whole(self._parts, allocation, EXCLUSIVE):
            self._move(allocation, taking=False)
        self._fitting = None
        self._undo.append((False, allocation))

    def mark(self) -> int:
        """A point to return to."""
        return len(self._undo)

    def rollback(self, mark: int) -> list[tuple[bool, Allocation]]:
        """Undo everything since `mark`; what was taken (True) and given, in order."""
        undone, self._undo[mark:] = self._undo[mark:], []
        for taken, allocation in reversed(undone):
            move = give_whole if taken else take_whole
            if not move(self._parts, allocation, EXCLUSIVE):
                self._move(allocation, taking=not taken)
        self._fitting = None
        return undone

    def commit(self) -> None:
        """Forget how to undo what was done so far."""
        self._undo.clear()

    # ---- inside

    def objection(self, allocation: Allocation) -> str:
        """The reason why an allocation cannot be promised now; empty where there is none."""
        if allocation is self._fitting:
            return ""
        whole = allocation.sharing is EXCLUSIVE and are_free(self._parts, allocation.slices)
        problem = "" if whole else self._objection(allocation)
        self._fitting = None if problem else allocation
        return problem

    def _objection(self, allocation: Allocation) -> str:
        slices, sharing = allocation.slices, allocation.sharing
        if not slices:
            return "an allocation without slices"
        if sharing is not EXCLUSIVE and not is_sound(sharing, EPS):
            return f"a share of {sharing.share:g} of a device"
        if len(slices) > 1 and (twice := find_repeated_node(slices)):
            return f"{twice} is listed twice"
        if not slices[0].gpus and allocation.gpus == 0:
            return self._host_objection(slices)
        for part in slices:
            if problem := self._part_objection(part, sharing):
                return problem
        return ""

    def _part_objection(self, part: Slice, sharing: Sharing) -> str:
        node = self.cluster.index.get(part.node)
        if node is None:
            return f"node {part.node!r} is not in the cluster"
        if not (devices := bits_of(part.gpus)):
            return f"{part.node} lists devices {part.gpus}"
        if devices & ~self._mask[node] or sharing.tier is Tier.OPPORTUNISTIC:
            for gpu in part.gpus:
                if problem := self._device_objection(node, gpu, sharing):
                    return f"GPU {gpu} of {part.node} {problem}"
        if sharing.gpu_mem_gb is not None and (full := self._memory_objection(node, part, sharing)):
            return full
        cpus, mem = self._host[node]
        if part.cpus > cpus + 1e-6 or part.mem_gb > mem + 1e-6:
            return f"{part.node} has {cpus:.1f} CPUs and {mem:.1f} GB left"
        return ""

    def _host_objection(self, slices: tuple[Slice, ...]) -> str:
        """Say what is wrong with an allocation without devices, which is on one machine."""
        part = slices[0]
        node = self.cluster.index.get(part.node)
        if node is None:
            return f"node {part.node!r} is not in the cluster"
        if len(slices) > 1 or not (part.cpus > 0.0 and part.mem_gb >= 0.0):
            return f"{part.node} lists devices {part.gpus}"
        machine, (cpus, mem_gb) = self.cluster.nodes[node], self.hosted(node)
        left = (machine.cpus or inf) - cpus, (machine.mem_gb or inf) - mem_gb
        if part.cpus > left[0] + 1e-6 or part.mem_gb > left[1] + 1e-6:
            rest = f"{left[0]:.1f} CPUs and {left[1]:.1f} GB left for jobs without GPUs"
            return f"{part.node} has {rest}"
        return ""

    def _memory_objection(self, node: int, part: Slice, sharing: Sharing) -> str:
        most = self.cluster.nodes[node].device_gb
        wanted = sharing.gpu_mem_gb or 0.0
        for gpu in part.gpus:
            claimed = self.claimed_gb(node, gpu)
            if claimed + wanted > most + 1e-6:
                return (
                    f"GPU {gpu} of {part.node} has {most - claimed:.1f} of {most:.0f} GB of "
                    f"memory left, not {wanted:.1f}"
                )
        return ""

    def _device_objection(self, node: int, gpu: int, sharing: Sharing) -> str:
        if not 0 <= gpu < self.cluster.nodes[node].gpus:
            return "does not exist"
        if sharing.tier is Tier.OPPORTUNISTIC:
            full = self._residents.get((node, gpu), 0) >= RESIDENTS
            return f"hosts {RESIDENTS} opportunistic jobs already" if full else ""
        if self._mask[node] >> gpu & 1:
            return ""
        claim = self._claims.get((node, gpu), WHOLE)
        fits = claim + count_parts(sharing.share) <= WHOLE + SLACK
        return "" if fits else f"is claimed to {claim / WHOLE:.2f} already"

    def _move(self, allocation: Allocation, *, taking: bool) -> None:
        sharing, parts = allocation.sharing, self._parts
        whole = sharing.share >= 1.0 - EPS and sharing.tier is Tier.GUARANTEED
        for part in allocation.slices:
            node = self.cluster.index[part.node]
            if not part.gpus:
                self._move_hosted(node, part, 1 if taking else -1)
                continue
            if whole:
                devices, mask = bits_of(part.gpus), self._mask[node]
                set_mask(parts, node, mask & ~devices if taking else mask | devices)
            elif sharing.tier is Tier.OPPORTUNISTIC:
                self._move_residents(node, part.gpus, 1 if taking else -1)
            else:
                claim = count_parts(sharing.share)
                self._move_claims(node, part.gpus, claim if taking else -claim)
            if sharing.gpu_mem_gb:
                claim = count_parts(sharing.gpu_mem_gb)
                self._move_memory(node, part.gpus, claim if taking else -claim)
            move_host(parts, node, part, -1.0 if taking else 1.0)

    def _move_claims(self, node: int, gpus: tuple[int, ...], change: int) -> None:
        for gpu in gpus:
            claim = self._claims.pop((node, gpu), 0) + change
            if claim:
                self._claims[node, gpu] = claim
                set_mask(self._parts, node, self._mask[node] & ~(1 << gpu))
            else:
                set_mask(self._parts, node, self._mask[node] | 1 << gpu)
        self._claimed += change * len(gpus)

    def _move_memory(self, node: int, gpus: tuple[int, ...], change: int) -> None:
        for gpu in gpus:
            claim = self._memory.pop((node, gpu), 0) + change
            if claim:
                self._memory[node, gpu] = claim

    def _move_residents(self, node: int, gpus: tuple[int, ...], change: int) -> None:
        for gpu in gpus:
            count = self._residents.pop((node, gpu), 0) + change
            if count > 0:
                self._residents[node, gpu] = count

    def _move_hosted(self, node: int, part: Slice, sign: int) -> None:
        cpus, mem_gb = self._hosted.get(node, (0, 0))
        more = (sign * count_parts(part.cpus), sign * count_parts(part.mem_gb))
        self._hosted[node] = (cpus + more[0], mem_gb + more[1])
