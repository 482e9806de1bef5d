"""Places for sizes inside a node, or of whole nodes and a rest (Sia, SOSP 2023).

Sizes that are powers of two inside a node, or whole nodes, always find a place while capacity per
kind is respected, but jobs in the way may have to move: the fewest GPUs' worth, smallest first.
Other sizes may find none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from weft.core.free import Free
from weft.core.model import EXCLUSIVE, Allocation, Config, Sharing
from weft.core.view import View

Nodes = dict[int, int]  # node to devices taken there


@dataclass(slots=True)
class KindNodes:
    """The nodes of one kind: free devices, and jobs that hold a part of each.

    `large` are the nodes of the largest size that no job has whole.
    """

    size: int
    large: set[int] = field(default_factory=set)
    free: dict[int, int] = field(default_factory=dict)
    guests: dict[int, dict[int, int]] = field(default_factory=dict)
    by_free: dict[int, set[int]] = field(default_factory=dict)

    def set_free(self, node: int, free: int) -> None:
        """A node now has so many free devices."""
        self.by_free.get(self.free.get(node, -1), set()).discard(node)
        self.free[node] = free
        self.by_free.setdefault(free, set()).add(node)


def place_configs(view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation | None]:
    """What changes if the rows of `wanted`, and no others, hold these sizes.

    Rows whose size did not change stay if they can; a row without a place holds nothing.
    """
    ledger, table = view.free, view.table
    held: dict[int, Allocation] = {}
    mark = ledger.mark()
    for row, on in enumerate(table.allocations):
        if on is None:
            continue
        if row in wanted and _same_size(view, on, wanted[row]):
            held[row] = on
        else:
            ledger.give(on)
    where = _assign(view, wanted, held)
    for row in where:
        if row in held:
            ledger.give(held.pop(row))
    for row in sorted(where, key=lambda r: (-wanted[r].gpus, r)):
        if sum(where[row].values()) == wanted[row].gpus:
            held[row] = _build(ledger, where[row], view.job(row).demand.share)
            ledger.take(held[row])
    ledger.rollback(mark)
    changed = {row: on for row, on in held.items() if on != table.allocations[row]}
    lost = {r: None for r, on in enumerate(table.allocations) if on is not None and r not in held}
    return {**lost, **changed}


def _same_size(view: View, on: Allocation, wanted: Config) -> bool:
    return on.gpus == wanted.gpus and view.cluster.kind_of(on) == wanted.kind


def _build(ledger: Free, nodes: Nodes, share: float) -> Allocation:
    """Devices of one's own; who asked for a part of one claims no more of it."""
    slices = tuple(ledger.slice(node, count, share) for node, count in sorted(nodes.items()))
    return Allocation(slices, EXCLUSIVE if share == 1.0 else Sharing(share=share))


def _survey(view: View, held: Mapping[int, Allocation]) -> dict[str, KindNodes]:
    kinds = {kind: KindNodes(view.cluster.node_size(kind)) for kind in view.cluster.kinds}
    for i, node in enumerate(view.cluster.nodes):
        kinds[node.kind].set_free(i, view.free.on(i))
        kinds[node.kind].guests[i] = {}
        if node.gpus == kinds[node.kind].size:
            kinds[node.kind].large.add(i)
    for row, on in held.items():
        for part in on.slices:
            at = view.cluster.index[part.node]
            machine = view.cluster.nodes[at]
            if len(part.gpus) < machine.gpus:
                kinds[machine.kind].guests[at][row] = len(part.gpus)
            else:
                kinds[machine.kind].large.discard(at)
    return kinds


def _assign(
    view: View, wanted: Mapping[int, Config], held: Mapping[int, Allocation]
) -> dict[int, Nodes]:
    """Nodes for every row that starts, and for those it pushes aside."""
    kinds = _survey(view, held)
    where: dict[int, Nodes] = {}
    pushed: list[tuple[int, int]] = []
    parts: list[tuple[int, int]] = []
    starts = [row for row in wanted if row not in held]
    for row in sorted(starts, key=lambda r: (-wanted[r].gpus, r)):
        kind = kinds[wanted[row].kind]
        whole, rest = divmod(wanted[row].gpus, kind.size)
        large = min(whole, len(kind.large))
        where[row] = {_empty_node(kind, pushed): kind.size for _ in range(large)}
        # A kind with too few large nodes: halves may do on the small ones.
        parts += [(-kind.size // 2, row)] * (2 * (whole - large))
        parts += [(-rest, row)] * (rest > 0)
    parts += [_aside(view, held, where, one) for one in pushed]
    heapify(parts)
    while parts:
        negative, row = heappop(parts)
        kind, pushed = kinds[wanted[row].kind], []
        node = _room_for(kind, -negative, pushed)
        if node is None:
            continue
        kind.set_free(node, kind.free[node] + negative)
        kind.guests[node][row] = kind.guests[node].get(row, 0) - negative
        where[row][node] = where[row].get(node, 0) - negative
        for one in pushed:
            heappush(parts, _aside(view, held, where, one))
    return where


def _aside(
    view: View,
    held: Mapping[int, Allocation],
    where: dict[int, Nodes],
    pushed: tuple[int, int],
) -> tuple[int, int]:
    """A row must leave one node: what it takes there looks for another place."""
    row, node = pushed
    if row not in where:
        slices = held[row].slices
        where[row] = {view.cluster.index[part.node]: len(part.gpus) for part in slices}
    return -where[row].pop(node), row


def _empty_node(kind: KindNodes, pushed: list[tuple[int, int]]) -> int:
    """A whole node: an empty one from the end, else the one with most room, emptied."""
    node = max(kind.large, key=lambda n: (kind.free[n], n))
    kind.large.discard(node)
    pushed += [(row, node) for row in kind.guests[node]]
    kind.guests[node] = {}
    kind.set_free(node, 0)
    return node


def _room_for(kind: KindNodes, need: int, pushed: list[tuple[int, int]]) -> int | None:
    """The node that fits best; else the one where the fewest GPUs must move, smallest first."""
    for free in range(need, kind.size + 1):
        if nodes := kind.by_free.get(free):
            return min(nodes)
    # Only what is smaller may be pushed aside, so that this comes to an end.
    room = {
        node: free + sum(gpus for gpus in kind.guests[node].values() if gpus < need)
        for node, free in kind.free.items()
    }
    enough = [node for node, gpus in room.items() if gpus >= need]
    if not enough:
        return None
    node = max(enough, key=lambda n: (kind.free[n], -n))
    for row in sorted(kind.guests[node], key=lambda r: (kind.guests[node][r], r)):
        if kind.free[node] >= need:
            break
        kind.set_free(node, kind.free[node] + kind.guests[node].pop(row))
        pushed.append((row, node))
    return node
