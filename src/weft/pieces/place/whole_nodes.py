"""Places for sizes that are a power of two inside a node, or whole nodes (Sia, SOSP 2023).

With capacity per kind respected such a placement always exists, but jobs in the way may have to
move: the fewest GPUs' worth, smallest jobs first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from weft.core.free import Free
from weft.core.model import Allocation, Config, NodeId
from weft.core.view import View


@dataclass(slots=True)
class Kind:
    """The nodes of one kind: free devices and single-node jobs on each."""

    size: int
    free: dict[int, int] = field(default_factory=dict)
    guests: dict[int, dict[int, int]] = field(default_factory=dict)
    by_free: dict[int, set[int]] = field(default_factory=dict)

    def set_free(self, node: int, free: int) -> None:
        """A node now has so many free devices."""
        self.by_free.get(self.free.get(node, -1), set()).discard(node)
        self.free[node] = free
        self.by_free.setdefault(free, set()).add(node)


def place_configs(view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation]:
    """Allocations for the rows of `wanted`; rows whose size did not change stay where they are.

    Rows that run and are not wanted leave. Only rows that move or start are in the answer.
    """
    ledger, table = view.free, view.table
    stay: dict[int, Allocation] = {}
    mark = ledger.mark()
    for row, on in enumerate(table.allocations):
        if on is None:
            continue
        if row in wanted and config_of(view, on) == wanted[row]:
            stay[row] = on
        else:
            ledger.give(on)
    kinds = _survey(view, stay)
    starts = {row: config for row, config in wanted.items() if row not in stay}
    where = _assign(kinds, wanted, starts)
    moved = [row for row in where if row in stay]
    for row in moved:
        ledger.give(stay[row])
    placed: dict[int, Allocation] = {}
    for row in sorted(where, key=lambda r: (-wanted[r].gpus, r)):
        placed[row] = _build(ledger, where[row], wanted[row].gpus)
        ledger.take(placed[row])
    ledger.rollback(mark)
    return placed


def config_of(view: View, on: Allocation) -> Config:
    """The size of an allocation."""
    return Config(view.cluster.kind_of(on), len(on.slices), on.gpus)


def _build(ledger: Free, nodes: list[int], gpus: int) -> Allocation:
    each = gpus // len(nodes)
    return Allocation(tuple(ledger.slice(node, each) for node in sorted(nodes)))


def _survey(view: View, stay: Mapping[int, Allocation]) -> dict[str, Kind]:
    kinds = {kind: Kind(view.cluster.node_size(kind)) for kind in view.cluster.kinds}
    for i, node in enumerate(view.cluster.nodes):
        kinds[node.kind].set_free(i, view.free.on(i))
        kinds[node.kind].guests[i] = {}
    index: Mapping[NodeId, int] = view.cluster.index
    for row, on in stay.items():
        if len(on.slices) == 1:
            at = index[on.slices[0].node]
            if on.gpus < view.cluster.nodes[at].gpus:
                kinds[view.cluster.nodes[at].kind].guests[at][row] = on.gpus
    return kinds


def _assign(
    kinds: Mapping[str, Kind], wanted: Mapping[int, Config], starts: Mapping[int, Config]
) -> dict[int, list[int]]:
    """Nodes for every row that starts, and for those it pushes aside."""
    where: dict[int, list[int]] = {}
    small: list[int] = []
    for row in sorted(starts, key=lambda r: (-starts[r].gpus, r)):
        kind = kinds[starts[row].kind]
        if starts[row].gpus >= kind.size:
            where[row] = [_empty_node(kind, small) for _ in range(starts[row].gpus // kind.size)]
        else:
            small.append(row)
    queue = [(-wanted[row].gpus, row) for row in small]
    heapify(queue)
    while queue:
        _, row = heappop(queue)
        kind, need = kinds[wanted[row].kind], wanted[row].gpus
        pushed: list[int] = []
        node = _room_for(kind, need, pushed)
        kind.set_free(node, kind.free[node] - need)
        kind.guests[node][row] = need
        where[row] = [node]
        for other in pushed:
            heappush(queue, (-wanted[other].gpus, other))
    return where


def _empty_node(kind: Kind, pushed: list[int]) -> int:
    """A whole node: an empty one from the end, else the one with most room, emptied."""
    most = max(free for free, nodes in kind.by_free.items() if nodes)
    node = max(kind.by_free[most])
    pushed += kind.guests[node]
    kind.guests[node] = {}
    kind.set_free(node, 0)
    return node


def _room_for(kind: Kind, need: int, pushed: list[int]) -> int:
    """The node that fits best; else the one where the fewest GPUs must move, smallest first."""
    for free in range(need, kind.size + 1):
        if nodes := kind.by_free.get(free):
            return min(nodes)
    open_nodes = [n for n in kind.free if kind.free[n] + sum(kind.guests[n].values()) >= need]
    node = max(open_nodes, key=lambda n: (kind.free[n], -n))
    for row in sorted(kind.guests[node], key=lambda r: (kind.guests[node][r], r)):
        if kind.free[node] >= need:
            break
        kind.set_free(node, kind.free[node] + kind.guests[node].pop(row))
        pushed.append(row)
    return node
