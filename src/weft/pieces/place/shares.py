"""Places for jobs that ask for a part of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.core.model.job import Allocation, Job, Sharing
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
