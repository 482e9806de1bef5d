"""More or fewer devices beside those that a job has already."""

from __future__ import annotations

from weft.core.free import Free
from weft.core.model import Allocation, Slice


def resize(on: Allocation, count: int, free: Free) -> Allocation | None:
    """An allocation of `count` devices that keeps as many of `on` as it can, with host parts.

    What is held must have been given back to the ledger; nothing is taken. Fewer devices leave
    the smallest parts first; more come from the same nodes, then from where they fit best. None
    if the kind has too few.
    """
    cluster = free.cluster
    parts = {cluster.index[part.node]: list(part.gpus) for part in on.slices}
    kind = cluster.kind_of(on)
    more = count - on.gpus
    while more < 0:
        node = min(parts, key=lambda n: (len(parts[n]), n))
        drop = min(-more, len(parts[node]))
        parts[node] = parts[node][: len(parts[node]) - drop]
        more += drop
        if not parts[node]:
            del parts[node]
    if more > free.idle(kind) - on.gpus:
        return None
    for node in sorted(parts, key=lambda n: -free.on(n)):
        more -= _extend(parts, node, more, free)
    while more > 0:
        opened = [node for node in free.opening(kind, more) if node not in parts]
        opened = opened or _others(parts, kind, free)
        for node in opened:
            more -= _extend(parts, node, more, free)
    return Allocation(tuple(_slice(node, gpus, free) for node, gpus in sorted(parts.items())))


def _extend(parts: dict[int, list[int]], node: int, more: int, free: Free) -> int:
    """Take up to `more` other free devices of a node; how many."""
    held = parts.get(node, [])
    idle = [gpu for gpu in free.slice(node, free.on(node)).gpus if gpu not in held]
    if more > 0 and idle:
        parts[node] = held + idle[:more]
    return min(max(more, 0), len(idle))


def _others(parts: dict[int, list[int]], kind: str, free: Free) -> list[int]:
    """Nodes not used yet, the emptiest first."""
    nodes = [i for i, node in enumerate(free.cluster.nodes) if node.kind == kind]
    return sorted((n for n in nodes if n not in parts), key=lambda n: (-free.on(n), n))


def _slice(node: int, gpus: list[int], free: Free) -> Slice:
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return free.slice_of(node, mask)
