"""When a round ends before its time: devices are free, and a job waits that fits on them."""

from __future__ import annotations

from weft.core.model.gang_nodes import place_on_nodes
from weft.core.model.job import Demand
from weft.core.plan.kept_back import find_kept_back
from weft.core.state.capacity import Capacity
from weft.core.state.table import Table

PAUSE_S = 5.0  # between two decisions of a policy with rounds, so that bursts are decided together


def could_start(table: Table, free: Capacity) -> bool:
    """Whether a waiting job fits on what is free, on one of its kinds.

    Jobs that wait for a person or for other jobs do not count, nor those without devices.
    """
    if not free.room():
        return False
    looks = table.conditional or table.suspended
    kept_back = find_kept_back(table) if looks else None
    rows = table.waiting_rows().tolist()
    demands = {table.jobs[row].demand for row in rows if kept_back is None or not kept_back[row]}
    return any(
        _fits(demand, kind, free)
        for demand in demands
        for kind in demand.kinds or free.kinds
        if demand.max and kind in free.kinds
    )


def _fits(demand: Demand, kind: str, free: Capacity) -> bool:
    if demand.share < 1.0 and free.with_room(kind, demand.share):
        return True
    if demand.nodes:
        return place_on_nodes(free, kind, demand) is not None
    return demand.min <= free.idle(kind)
