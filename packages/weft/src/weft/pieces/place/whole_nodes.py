"""Places for sizes inside a node, or of whole nodes and a rest (Sia, SOSP 2023).

Sizes that are powers of two inside a node, or whole nodes, always find a place while capacity per
kind is respected, but jobs in the way may have to move: the fewest GPUs' worth, smallest first.
Other sizes may find none, and so may any size where jobs in the way are not to be stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from weft.core.model.job import EXCLUSIVE, Allocation, Config, Sharing
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.pieces.place.resize import resize

Nodes = dict[int, int]  # node to devices taken there
Held = Mapping[int, Allocation]  # by row
NOWHERE: frozenset[int] = frozenset()


@dataclass(slots=True)
class KindNodes:
    """The nodes of one kind: free devices, and jobs that hold a part of each and may move.

    `large` are the nodes of the largest size that no job has whole. They can be
    cleared; on `blocked` more nodes a job stays in any case.
    """

    size: int
    large: set[int] = field(default_factory=set)
    blocked: int = 0
    free: dict[int, int] = field(default_factory=dict)
    guests: dict[int, dict[int, int]] = field(default_factory=dict)
    by_free: dict[int, set[int]] = field(default_factory=dict)

    def set_free(self, node: int, free: int) -> None:
        """A node now has that many free devices."""
        self.by_free.get(self.free.get(node, -1), set()).discard(node)
        self.free[node] = free
        self.by_free.setdefault(free, set()).add(node)


def place_configs(
    view: View,
    wanted: Mapping[int, Config],
    guests: Collection[int] = (),
    firm: Collection[int] = (),
) -> dict[int, Allocation | None]:
    """The changes if the rows of `wanted`, and no others, hold these sizes.

    Rows whose size did not change stay if they can, those of `firm` in any case. A row without a
    place for its new size stays as it is if it still can, else it holds nothing. Jobs that change
    their devices as they train keep as many of them as they can. `guests` hold devices of others,
    and keep nothing of them.
    """
    ledger, table = view.free, view.table
    held: dict[int, Allocation] = {}
    homes: dict[int, Allocation] = {}
    mark = ledger.mark()
    for row, on in enumerate(table.allocations):
        if on is None:
            continue
        stays = row in wanted and row not in guests
        if stays and _same_size(view, on, wanted[row]):
            held[row] = on
            continue
        ledger.give(on)
        if stays and wanted[row].kind == view.cluster.kind_of(on) and _is_live(view, row):
            homes[row] = on
            if (part := _shrink(ledger, on, wanted[row])) is not None:
                ledger.take(part)
                held[row] = part
    where = _assign(view, wanted, held, homes, frozenset(firm))
    for row in where:
        if row in held:
            ledger.give(held.pop(row))
    for row in sorted(where, key=lambda r: (r not in homes, -wanted[r].gpus, r)):
        if sum(where[row].values()) == wanted[row].gpus:
            home = homes.get(row)
            held[row] = _build(ledger, where[row], view.job(row).demand.share, home)
            ledger.take(held[row])
    held |= _stay(view, [row for row in where if row not in held and row not in guests])
    ledger.rollback(mark)
    changed = {row: on for row, on in held.items() if on != table.allocations[row]}
    lost = {r: None for r, on in enumerate(table.allocations) if on is not None and r not in held}
    return {**lost, **changed}


def _stay(view: View, rows: Iterable[int]) -> dict[int, Allocation]:
    """Allocations of the rows that cannot be preempted; they take them in the ledger."""
    stays: dict[int, Allocation] = {}
    for row in rows:
        on = view.allocation(row)
        if on is not None and not view.free.objection(on):
            view.free.take(on)
            stays[row] = on
    return stays


def _same_size(view: View, on: Allocation, wanted: Config) -> bool:
    return on.gpus == wanted.gpus and view.cluster.kind_of(on) == wanted.kind


def _is_live(view: View, row: int) -> bool:
    """True if a running job changes its devices as it trains, so that those it keeps matter."""
    costs, on = view.knowledge.costs, view.allocation(row)
    if costs is None or on is None:
        return False
    return costs.costs(view.job(row), view.cluster.kind_of(on)).live


def _shrink(ledger: Capacity, on: Allocation, wanted: Config) -> Allocation | None:
    """A part of what is held, on as many nodes as wanted; None if it is none."""
    if wanted.gpus >= on.gpus or on.sharing != EXCLUSIVE:
        return None
    part = resize(on, wanted.gpus, ledger)
    return part if part is not None and len(part.slices) == wanted.nodes else None


def _build(
    ledger: Capacity, nodes: Nodes, share: float, home: Allocation | None = None
) -> Allocation:
    """Devices of its own, those of `home` first; a part of one if it asked for no more."""
    own: dict[int, int] = {}
    for part in () if home is None else home.slices:
        own[ledger.cluster.index[part.node]] = sum(1 << gpu for gpu in part.gpus)
    slices = []
    for node, count in sorted(nodes.items()):
        kept = own.get(node, 0) & ledger.idle_mask(node)
        if kept.bit_count() >= count or not kept:
            slices.append(ledger.slice(node, count, share))
            continue
        for gpu in range(ledger.cluster.nodes[node].gpus):
            if kept.bit_count() < count:
                kept |= 1 << gpu & ledger.idle_mask(node)
        slices.append(ledger.slice_of(node, kept, share))
    return Allocation(tuple(slices), EXCLUSIVE if share == 1.0 else Sharing(share=share))


def _survey(view: View, held: Held, firm: frozenset[int]) -> dict[str, KindNodes]:
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
            kind, whole = kinds[machine.kind], len(part.gpus) == machine.gpus
            kind.blocked += not whole and row in firm and at in kind.large
            if whole or row in firm:
                kind.large.discard(at)
            else:
                kind.guests[at][row] = len(part.gpus)
    return kinds


def _assign(
    view: View, wanted: Mapping[int, Config], held: Held, homes: Held, firm: frozenset[int]
) -> dict[int, Nodes]:
    """Nodes for every row that starts, and for those it pushes aside; at `homes` if they can."""
    starts = [row for row in wanted if row not in held]
    if not starts:
        return {}
    kinds = _survey(view, held, firm)
    near = {
        row: frozenset(view.cluster.index[part.node] for part in on.slices)
        for row, on in homes.items()
    }
    where: dict[int, Nodes] = {}
    pushed: list[tuple[int, int]] = []
    parts: list[tuple[int, int]] = []
    for row in sorted(starts, key=lambda r: (-wanted[r].gpus, r)):
        kind = kinds[wanted[row].kind]
        whole, rest = divmod(wanted[row].gpus, kind.size)
        large = min(whole, len(kind.large) + kind.blocked)
        own = near.get(row, NOWHERE)
        where[row] = {}
        if large > len(kind.large):
            continue
        where[row] = {_empty_node(kind, pushed, own): kind.size for _ in range(large)}
        # A kind with too few large nodes: halves may do on the small ones.
        parts += [(-kind.size // 2, row)] * (2 * (whole - large))
        parts += [(-rest, row)] * (rest > 0)
    parts += [_aside(view, held, where, row_pushed) for row_pushed in pushed]
    heapify(parts)
    while parts:
        negative, row = heappop(parts)
        kind, pushed = kinds[wanted[row].kind], []
        node = _room_for(kind, -negative, pushed, near.get(row, NOWHERE))
        if node is None:
            continue
        kind.set_free(node, kind.free[node] + negative)
        kind.guests[node][row] = kind.guests[node].get(row, 0) - negative
        where[row][node] = where[row].get(node, 0) - negative
        for row_pushed in pushed:
            heappush(parts, _aside(view, held, where, row_pushed))
    return where


def _aside(
    view: View, held: Held, where: dict[int, Nodes], pushed: tuple[int, int]
) -> tuple[int, int]:
    """A row must leave one node: what it takes there looks for another place."""
    row, node = pushed
    if row not in where:
        slices = held[row].slices
        where[row] = {view.cluster.index[part.node]: len(part.gpus) for part in slices}
    return -where[row].pop(node), row


def _empty_node(kind: KindNodes, pushed: list[tuple[int, int]], near: frozenset[int]) -> int:
    """A whole node: an empty one, `near` first, from the end; else the one with most room."""
    free = range(max(kind.by_free), -1, -1)
    roomiest = next(nodes for f in free if (nodes := kind.by_free.get(f, set()) & kind.large))
    node = max(roomiest & near or roomiest)
    kind.large.discard(node)
    pushed += [(row, node) for row in kind.guests[node]]
    kind.guests[node] = {}
    kind.set_free(node, 0)
    return node


def _room_for(
    kind: KindNodes, need: int, pushed: list[tuple[int, int]], near: frozenset[int]
) -> int | None:
    """The node that fits best; else the one where the fewest GPUs must move, smallest first."""
    for node in sorted(near):
        if kind.free.get(node, 0) >= need:
            return node
    for free in range(need, kind.size + 1):
        if nodes := kind.by_free.get(free):
            return min(nodes)
    # Only what is smaller may be pushed aside, so that this comes to an end.
    cleared = _first_to_clear(kind, need)
    if cleared is None:
        return None
    node = cleared
    for row in sorted(kind.guests[node], key=lambda r: (kind.guests[node][r], r)):
        if kind.free[node] >= need:
            break
        kind.set_free(node, kind.free[node] + kind.guests[node].pop(row))
        pushed.append((row, node))
    return node


def _first_to_clear(kind: KindNodes, need: int) -> int | None:
    """Return the node with most free, once what is smaller than `need` has left."""
    for free in range(need - 1, -1, -1):
        for node in sorted(kind.by_free.get(free, ())):
            smaller = sum(gpus for gpus in kind.guests[node].values() if gpus < need)
            if free + smaller >= need:
                return node
    return None
