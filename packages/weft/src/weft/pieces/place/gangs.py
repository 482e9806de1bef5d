"""Places for gangs of devices: on the fewest nodes, as few as possible, in gaps, or spread.

A placer looks at the ledger and returns an allocation, or None when the gang must wait. It
takes nothing itself. A gang stays on one kind; kinds are tried in the cluster's order. One that
asks for a number of nodes gets an equal part of each, from the fullest that have room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil

from weft.core.model.gang_nodes import place_on_nodes
from weft.core.model.job import Allocation, Job, Sharing, Slice
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity


def part_of_devices(job: Job, free: Capacity, kind: str) -> Allocation | None:
    """Fill the devices with the least room first, then open new ones; a gang takes several."""
    share, count = job.demand.share, job.demand.gpus
    devices = free.with_room(kind, share)[:count]
    if len(devices) + free.idle(kind) < count:
        return None
    for node in free.opening(kind, count - len(devices)):
        wanted = count - len(devices)
        opened = free.slice(node, min(wanted, free.on(node))).gpus
        devices += [(node, gpu) for gpu in opened]
    masks: dict[int, int] = {}
    for node, gpu in devices:
        masks[node] = masks.get(node, 0) | 1 << gpu
    slices = tuple(free.slice_of(node, mask, share) for node, mask in sorted(masks.items()))
    return Allocation(slices, Sharing(share=share))


def start_parts(
    view: View,
    changes: Mapping[int, Allocation | None],
    place: Callable[[Job, Capacity], Allocation | None],
) -> dict[int, Allocation]:
    """Jobs that wait for a part of a device and still find one, by row, after `changes`.

    For policies that count whole devices: what the jobs on them leave is of use to others.
    """
    waits = [
        row
        for row in view.table.waiting_rows().tolist()
        if view.job(row).demand.share < 1.0 and changes.get(row) is None
    ]
    starts: dict[int, Allocation] = {}
    if not waits:
        return starts
    free, mark = view.free, view.free.mark()
    for row in changes:
        if (was := view.allocation(row)) is not None:
            free.give(was)
    for to in changes.values():
        if to is not None:
            free.take(to)
    for row in waits:
        if (on := place(view.job(row), free)) is not None:
            free.take(on)
            starts[row] = on
    free.rollback(mark)
    return starts


Placer = Callable[[Job, Capacity], Allocation | None]
Divide = Callable[[Capacity, str, int], tuple[Slice, ...] | None]  # that many GPUs of a kind


def fewest_nodes(job: Job, free: Capacity) -> Allocation | None:
    """On one node if it fits, else on as few nodes as there are now."""
    return _first(job, free, _fewest)


def consolidate(job: Job, free: Capacity) -> Allocation | None:
    """On the least number of nodes an empty cluster would need, or not at all."""
    return _first(job, free, _consolidate)


def in_gaps(job: Job, free: Capacity) -> Allocation | None:
    """On one node if it fits, else in the gaps: the fullest nodes first."""
    return _first(job, free, _gaps)


def most_nodes(job: Job, free: Capacity) -> Allocation | None:
    """On as many nodes as there are with room, a device of each in turn, the emptiest first."""
    return _first(job, free, _spread)


def acceptable(job: Job, free: Capacity) -> tuple[str, ...]:
    """The kinds a job may use, in the cluster's order."""
    wanted = job.demand.kinds
    return free.kinds if not wanted else tuple(k for k in free.kinds if k in wanted)


def _first(job: Job, free: Capacity, whole: Divide) -> Allocation | None:
    demand = job.demand
    for kind in acceptable(job, free):
        if demand.share < 1.0:
            part = part_of_devices(job, free, kind)
            if part is not None:
                return part
            continue
        if demand.nodes:
            slices = place_on_nodes(free, kind, demand)
        else:
            slices = whole(free, kind, demand.gpus)
        if slices is not None:
            return Allocation(slices)
    return None


def _on_one(whole: Divide) -> Divide:
    """On the node that a gang fills best; else, where there is room, as `whole` divides it."""

    def place(free: Capacity, kind: str, count: int) -> tuple[Slice, ...] | None:
        if (node := free.best_fit(kind, count)) is not None:
            return (free.slice(node, count),)
        return None if free.idle(kind) < count else whole(free, kind, count)

    return place


@_on_one
def _fewest(free: Capacity, kind: str, count: int) -> tuple[Slice, ...] | None:
    slices: list[Slice] = []
    used: set[int] = set()
    for size, node in _nodes(free, kind, descending=True):
        if size > count:
            # The rest fits on one node: the one that it fills best.
            node = next(n for s, n in _nodes(free, kind) if s >= count and n not in used)
            size = count
        slices.append(free.slice(node, size))
        used.add(node)
        count -= size
        if count == 0:
            break
    return tuple(slices)


def _consolidate(free: Capacity, kind: str, count: int) -> tuple[Slice, ...] | None:
    slices = _fewest(free, kind, count)
    if slices is None or len(slices) > ceil(count / free.cluster.node_size(kind)):
        return None
    return slices


@_on_one
def _gaps(free: Capacity, kind: str, count: int) -> tuple[Slice, ...] | None:
    slices: list[Slice] = []
    for size, node in _nodes(free, kind):
        taken = min(size, count)
        slices.append(free.slice(node, taken))
        count -= taken
        if count == 0:
            break
    return tuple(slices)


def _spread(free: Capacity, kind: str, count: int) -> tuple[Slice, ...] | None:
    if free.idle(kind) < count:
        return None
    room = {node: size for size, node in _nodes(free, kind, descending=True)}
    taken = dict.fromkeys(room, 0)
    while count:
        for node in room:
            if count and taken[node] < room[node]:
                taken[node] += 1
                count -= 1
    return tuple(free.slice(node, gpus) for node, gpus in taken.items() if gpus)


def _nodes(free: Capacity, kind: str, *, descending: bool = False) -> Iterator[tuple[int, int]]:
    """(free devices, node) by free devices; nodes of equal room in order."""
    largest = free.cluster.node_size(kind)
    sizes = range(largest, 0, -1) if descending else range(1, largest + 1)
    for size in sizes:
        for node in free.nodes_with(kind, size):
            yield size, node
