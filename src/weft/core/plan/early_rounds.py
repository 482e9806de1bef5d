"""When a round ends before its time: devices are free, and a job waits that fits on them."""

from __future__ import annotations

from weft.core.state.capacity import Capacity
from weft.core.state.table import Column, Table

PAUSE_S = 5.0  # between two decisions of a policy with rounds, so that bursts are decided together


def could_start(table: Table, free: Capacity) -> bool:
    """Whether a waiting job asks for no more than is free, on one of its kinds.

    Jobs that wait for a person or for other jobs do not count.
    """
    if not free.room():
        return False
    idle = dict(zip(free.kinds, free.idle_by_kind(), strict=True))
    for row, (job, on) in enumerate(zip(table.jobs, table.allocations, strict=True)):
        if on is not None or job.conditional or job.id in table.suspended:
            continue
        least = table.get(row, Column.MIN)
        kinds = job.demand.kinds or free.kinds
        if job.demand.share < 1.0 or any(least <= idle.get(kind, 0) for kind in kinds):
            return True
    return False
