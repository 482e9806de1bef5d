"""Places for jobs that ask for a part of a device."""

from __future__ import annotations

from weft.core.model.job import Allocation, Job, Sharing
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
