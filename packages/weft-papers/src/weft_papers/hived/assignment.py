"""Assignment of cells to virtual clusters on the machines there are, as far as these suffice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from weft.core.errors import did_you_mean
from weft.core.model.cluster import Cluster
from weft.core.model.job import NodeId
from weft.core.model.topology import Groups, NodeTopology
from weft.frozen import frozen
from weft.stack.windows import read_gpus
from weft_papers.hived.cells import Cell, CellChain, FreeCells, check_assignment
from weft_papers.hived.rules import GPU, NODE, CellOptions, CellRequest, read_levels

SOCKET, RACK = "socket", "rack"
ANY = "*"
# Name, kind, devices, rack, levels inside it, CPUs and memory of its host.
Machine = tuple[str, str, int, str, str, float, float]


@dataclass(frozen=True)
class CellLayout:
    """The machines as chains, in the order of `machines`, and the cells of virtual clusters."""

    chains: tuple[CellChain, ...]
    machines: tuple[tuple[Machine, ...], ...]  # of each chain, by number
    home: Mapping[str, tuple[int, int]]  # name to (chain, number)
    owned: tuple[Owned, ...]
    problems: tuple[str, ...]

    @cached_property
    def by_name(self) -> dict[str, Owned]:
        """Cells of virtual clusters by name."""
        return {cell.name: cell for cell in self.owned}

    @cached_property
    def by_tenant(self) -> dict[str, tuple[Owned, ...]]:
        """The cells of each virtual cluster."""
        cells_of: defaultdict[str, list[Owned]] = defaultdict(list)
        for cell in self.owned:
            cells_of[cell.tenant].append(cell)
        return {tenant: tuple(cells) for tenant, cells in cells_of.items()}

    @cached_property
    def wanted(self) -> tuple[tuple[int, ...], ...]:
        """Cells of each chain and level that are bound as they are needed."""
        counts = [[0] * len(chain.fan) for chain in self.chains]
        for cell in self.owned:
            counts[cell.chain][cell.level] += cell.pinned is None
        return tuple(map(tuple, counts))

    @cached_property
    def machines_by_name(self) -> dict[str, dict[NodeId, Seat]]:
        """The machines of each virtual cluster by name."""
        seats: dict[str, dict[NodeId, Seat]] = {}
        for tenant, cells in self.by_tenant.items():
            rows = seats[tenant] = {}
            for cell in cells:
                parts = self.parts(cell)
                for part in range(parts):
                    name = cell.name if parts == 1 else f"{cell.name}.{part}"
                    rows[NodeId(name)] = Seat(cell, part)
        return seats

    @cached_property
    def gpus_by_kind(self) -> dict[str, dict[str, int]]:
        """Devices of each kind that each virtual cluster has."""
        room: dict[str, dict[str, int]] = {}
        for tenant, cells in self.by_tenant.items():
            kinds: dict[str, int] = defaultdict(int)
            for cell in cells:
                kinds[self.machines[cell.chain][0][1]] += self.chains[cell.chain].sizes[cell.level]
            room[tenant] = dict(kinds)
        return room

    @cached_property
    def least_host(self) -> tuple[tuple[float, float], ...]:
        """The smallest CPUs and memory of a machine of each chain: what any cell can count on."""
        return tuple((min(m[5] for m in row), min(m[6] for m in row)) for row in self.machines)

    def parts(self, cell: Owned) -> int:
        """Machines that a cell is made of; 1 for one inside a machine."""
        chain = self.chains[cell.chain]
        return max(chain.sizes[cell.level] // chain.node_size, 1)


@frozen
class Seat:
    """A machine of a virtual cluster: the `part`-th of the machines of a cell, or a part of one."""

    cell: Owned
    part: int


@frozen
class Owned:
    """One cell of a virtual cluster; `pinned` is where it is forever, else it is bound again."""

    name: str
    tenant: str
    chain: int
    level: int
    pinned: Cell | None = None


def machines_of(cluster: Cluster) -> tuple[Machine, ...]:
    """Return the machines of a cluster in the form that cells are made of."""
    inside: dict[str, str] = {}  # machines of a type share one topology
    machines = []
    for node in cluster.nodes:
        name = "" if node.topology is None else node.topology.name
        if name not in inside:
            inside[name] = "" if node.topology is None else _levels_inside(node.topology)
        host = node.cpus, node.mem_gb
        machines.append((node.id, node.kind, node.gpus, node.rack, inside[name], *host))
    return tuple(machines)


def _levels_inside(topology: NodeTopology) -> str:
    """Switches and sockets, where devices are numbered one group after the other."""
    words, size = [], 1
    for name, groups in (("switch", topology.switches), (SOCKET, topology.sockets)):
        sizes = {len(group) for group in groups}
        if len(groups) < 2 or len(sizes) > 1 or sorted(groups) != _in_order(groups):
            continue
        (each,) = sizes
        if each > size and each % size == 0:
            words.append(f"{name}*{each // size}")
            size = each
    return " ".join([*words, f"{NODE}*{topology.gpus // size}"]) if words else ""


def _in_order(groups: Groups) -> list[tuple[int, ...]]:
    """Number the devices of sorted groups one after the other."""
    ordered, at = [], 0
    for group in sorted(groups):
        ordered.append(tuple(range(at, at + len(group))))
        at += len(group)
    return ordered


@lru_cache(maxsize=16)
def lay_out(machines: tuple[Machine, ...], rules: CellOptions) -> CellLayout:
    """Chains of these machines, and as many of the cells asked for as they can hold.

    `problems` says what they cannot, each in a line.
    """
    groups: dict[tuple[str, int], list[Machine]] = defaultdict(list)
    for machine in machines:
        groups[machine[1], machine[2]].append(machine)
    chains, ordered, problems = [], [], []
    for (kind, gpus), members in groups.items():
        alone = sum(other == kind for other, _ in groups) == 1
        chain, row, trouble = _chain(
            kind if alone else f"{kind}-{gpus}", kind, gpus, members, rules
        )
        chains.append(chain)
        ordered.append(row)
        problems += trouble
    home = {machine[0]: (c, i) for c, row in enumerate(ordered) for i, machine in enumerate(row)}
    owned, trouble = _assign(chains, home, rules)
    problems += trouble
    return CellLayout(tuple(chains), tuple(ordered), home, tuple(owned), tuple(problems))


def _chain(
    name: str, kind: str, gpus: int, members: list[Machine], rules: CellOptions
) -> tuple[CellChain, tuple[Machine, ...], list[str]]:
    levels = dict(rules.levels)
    own_levels = levels.get(name, levels.get(kind, levels.get(ANY)))
    racks = _racks(members)
    problems = []
    if own_levels is None:
        inner = members[0][4]
        own_levels = read_levels(kind, inner) if inner else ((NODE, gpus),)
        own_levels += ((RACK, len(racks[0])),) if racks else ()
    names = [GPU, *(level for level, _ in own_levels)]
    fan = [1, *(count for _, count in own_levels)]
    node_level = names.index(NODE)
    size = 1
    for count in fan[: node_level + 1]:
        size *= count
    if size != gpus:
        problems.append(
            f"levels: {name}: {' x '.join(map(str, fan[1 : node_level + 1]))} devices make a node, "
            f"but its nodes have {gpus}"
        )
        names, fan, node_level = [GPU, NODE], [1, gpus], 1
    ordered, tops = _tops(members, fan, node_level)
    return CellChain(name, tuple(names), tuple(fan), node_level, tops), ordered, problems


def _racks(members: Sequence[Machine]) -> list[list[Machine]]:
    """Machines by rack, where all racks named are of one size."""
    racks: dict[str, list[Machine]] = defaultdict(list)
    for machine in members:
        if machine[3]:
            racks[machine[3]].append(machine)
    groups = list(racks.values())
    return groups if len({len(rack) for rack in groups}) == 1 and len(groups[0]) > 1 else []


def _tops(
    members: Sequence[Machine], fan: Sequence[int], node_level: int
) -> tuple[tuple[Machine, ...], tuple[int, ...]]:
    """Machines in the order of their cells, and how many cells of each level stand alone.

    Machines of a rack that is named stay together; others are taken as they come.
    """
    tops = [0] * len(fan)
    sizes, size = [1], 1
    for count in fan[node_level + 1 :]:
        size *= count
        sizes.append(size)
    groups: dict[str, list[Machine]] = defaultdict(list)
    for machine in members:
        groups[machine[3]].append(machine)
    whole: list[list[Machine]] = [[] for _ in sizes]
    for group in groups.values():
        at = 0
        for level in reversed(range(len(sizes))):
            while len(group) - at >= sizes[level]:
                whole[level] += group[at : at + sizes[level]]
                tops[node_level + level] += 1
                at += sizes[level]
    ordered = [machine for level in reversed(whole) for machine in level]
    return tuple(ordered), tuple(tops)


def _assign(
    chains: Sequence[CellChain], home: Mapping[str, tuple[int, int]], rules: CellOptions
) -> tuple[list[Owned], list[str]]:
    """Cells by name, pinned ones first; those that do not fit are left out and told."""
    problems: list[str] = []
    free = [FreeCells(chain) for chain in chains]
    owned = []
    for number, (tenant, text) in enumerate(rules.pinned):
        pin = _pin(chains, home, text)
        if isinstance(pin, str):
            problems.append(f"pinned: {tenant}: {pin}")
        elif not free[pin[0]].take_cell(pin[1]):
            problems.append(f"pinned: {tenant}: {text} is pinned already")
        else:
            at, cell = pin
            owned.append(Owned(f"{tenant}/pinned.{number}", tenant, at, cell[0], cell))
    asked: list[tuple[CellRequest, int, int]] = []
    for wish in rules.wanted:
        where = _find_level(chains, wish)
        if isinstance(where, str):
            problems.append(where)
        else:
            asked.append((wish, *where))
    for c, chain in enumerate(chains):
        mine = [(wish, level) for wish, at, level in asked if at == c]
        problems += _check(chain, free[c], mine)
        owned += _fit(c, chain, free[c], mine)
    return owned, problems


def _find_level(chains: Sequence[CellChain], wish: CellRequest) -> tuple[int, int] | str:
    if not chains:
        return f"cells: {wish.text}: there are no machines"
    names = [chain.name for chain in chains]
    if not wish.chain and len(chains) > 1:
        return (
            f"cells: {wish.text} names no kind; write {wish.tenant}@KIND.{wish.level} "
            f"with KIND one of {', '.join(names)}"
        )
    if wish.chain and wish.chain not in names:
        close = did_you_mean(wish.chain, names)
        return f"cells: {wish.text}: no machines of kind {wish.chain!r}{close}"
    c = names.index(wish.chain) if wish.chain else 0
    levels = chains[c].levels
    if wish.level not in levels:
        close = did_you_mean(wish.level, levels)
        return (
            f"cells: {wish.text}: {names[c]} has no level {wish.level!r}{close}; "
            f"it has {', '.join(levels)}"
        )
    return c, levels.index(wish.level)


def _check(
    chain: CellChain, free: FreeCells, asked: Iterable[tuple[CellRequest, int]]
) -> list[str]:
    """The first level, from the top, of which there are too few."""
    assigned, who = [0] * len(chain.fan), defaultdict(list)
    for wish, level in asked:
        assigned[level] += wish.count
        who[level].append(f"{wish.text}={wish.count}")
    balance = check_assignment(chain.fan, free.counts(), assigned)
    for level in reversed(range(len(chain.fan))):
        if balance[level].rest < 0:
            name, has = chain.levels[level], balance[level].available
            return [
                f"cells: {' and '.join(who[level])}: {assigned[level]} {chain.name} cells of level "
                f"{name!r} are assigned, but only {max(has, 0)} are left beside larger ones"
            ]
    return []


def _fit(
    number: int, chain: CellChain, free: FreeCells, asked: Sequence[tuple[CellRequest, int]]
) -> list[Owned]:
    """As many cells as there is hardware for, from the top down, in the order they are named."""
    owned: list[Owned] = []
    counts, rest = free.counts(), 0
    for level in reversed(range(len(chain.fan))):
        fan = chain.fan[level + 1] if level + 1 < len(chain.fan) else 0
        rest = counts[level] + rest * fan
        for wish, at in asked:
            if at != level:
                continue
            have = min(wish.count, rest)
            rest -= have
            name = f"{wish.tenant}/{chain.name}.{wish.level}"
            owned += [Owned(f"{name}.{i}", wish.tenant, number, level) for i in range(have)]
    return owned


def _pin(
    chains: Sequence[CellChain], home: Mapping[str, tuple[int, int]], text: str
) -> tuple[int, Cell] | str:
    """The cell that is exactly these devices."""
    node, colon, gpus = text.partition(":")
    if node not in home:
        return f"there is no node {node!r}{did_you_mean(node, home)}"
    c, number = home[NodeId(node)]
    chain = chains[c]
    whole: Cell = (chain.node_level, number)
    if not colon:
        return c, whole
    devices = read_gpus("pinned", gpus)
    first = chain.first(whole)
    for level in range(chain.node_level + 1):
        cell = chain.at(level, first + devices[0])
        if cell and [d - first for d in chain.devices(cell)] == list(devices):
            return c, cell
    levels = ", ".join(chain.levels[: chain.node_level + 1])
    return f"{text} is not one cell; a cell is a whole {levels}, numbered from 0"
