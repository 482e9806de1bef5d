"""Base and flexible workers of jobs, and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation
from weft.core.state.capacity import Capacity

Parts = dict[int, int]  # node to a bit mask of its devices


def parts_of(on: Allocation, cluster: Cluster) -> Parts:
    """What an allocation holds on each node."""
    return {cluster.index[part.node]: sum(1 << gpu for gpu in part.gpus) for part in on.slices}


def count_of(parts: Parts) -> int:
    """Devices in all."""
    return sum(mask.bit_count() for mask in parts.values())


def allocation_of(parts: Parts, free: Capacity) -> Allocation:
    """The same devices as an allocation."""
    return Allocation(tuple(free.slice_of(node, mask) for node, mask in sorted(parts.items())))


def join(parts: Parts, other: Parts) -> Parts:
    """Both together."""
    joined = dict(parts)
    for node, mask in other.items():
        joined[node] = joined.get(node, 0) | mask
    return joined


def split(parts: Parts, base: int, loaned: Sequence[bool]) -> tuple[Parts, Parts]:
    """Base and flexible workers: base ones are those on own nodes, and on the largest parts."""
    order = sorted(parts, key=lambda node: (loaned[node], -parts[node].bit_count(), node))
    needed: Parts = {}
    flexible: Parts = {}
    for node in order:
        mine = _lowest(parts[node], base)
        base -= mine.bit_count()
        if mine:
            needed[node] = mine
        if rest := parts[node] & ~mine:
            flexible[node] = rest
    return needed, flexible


def place_base(count: int, nodes: Iterable[int], free: Capacity) -> Parts | None:
    """On the node that it fits best, else on as few as can be, the largest first."""
    room = [(free.on(node), node) for node in nodes]
    fitting = [entry for entry in room if entry[0] >= count]
    if fitting:
        node = min(fitting)[1]
        return {node: _lowest(free.idle_mask(node), count)}
    if sum(idle for idle, _ in room) < count:
        return None
    parts: Parts = {}
    for idle, node in sorted(room, key=lambda entry: (-entry[0], entry[1])):
        if idle > count:
            # The rest fits on one node: the one that it fills best.
            node = min(entry for entry in room if entry[0] >= count and entry[1] not in parts)[1]
        parts[node] = _lowest(free.idle_mask(node), min(idle, count))
        count -= parts[node].bit_count()
        if not count:
            break
    return parts


def place_flexible(count: int, before: Parts, order: Iterable[int], free: Capacity) -> Parts:
    """Up to so many devices: first those that the job had `before`, then node by node in order."""
    parts: Parts = {}
    for node, mask in before.items():
        if kept := _lowest(free.idle_mask(node) & mask, count):
            parts[node] = kept
            count -= kept.bit_count()
    for node in order:
        if not count:
            break
        idle = free.idle_mask(node) & ~parts.get(node, 0)
        if taken := _lowest(idle, count):
            parts[node] = parts.get(node, 0) | taken
            count -= taken.bit_count()
    return parts


def _lowest(mask: int, count: int) -> int:
    """The lowest bits of a mask, at most so many."""
    while mask.bit_count() > count:
        mask &= ~(1 << (mask.bit_length() - 1))
    return mask
