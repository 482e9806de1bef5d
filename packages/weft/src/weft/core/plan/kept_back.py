"""Waiting jobs that could start: those that wait for nothing else than devices, and fit."""

from __future__ import annotations

from collections import Counter

import numpy as np

from weft.core.model.gang_nodes import place_on_nodes
from weft.core.model.job import Demand, Job, JobId
from weft.core.state.capacity import Capacity
from weft.core.state.table import Bools, JobTable


def find_kept_back(table: JobTable) -> Bools:
    """Rows of jobs that no policy is asked about.

    They wait for something else than devices: for others, their turn in an app, or a person.
    """
    running = Counter(
        app_of(job)
        for job, on in zip(table.jobs, table.allocations, strict=True)
        if on is not None and job.max_parallel
    )
    kept_back = np.zeros(len(table), dtype=bool)
    for row, job in enumerate(table.jobs):
        if job.id in table.suspended:
            kept_back[row] = True
            continue
        if table.allocations[row] is not None or not job.conditional:
            continue
        if table.awaits(job.after):
            kept_back[row] = True
        elif job.max_parallel:
            kept_back[row] = running[app_of(job)] >= job.max_parallel
            running[app_of(job)] += not kept_back[row]
    return kept_back


def app_of(job: Job) -> tuple[str, str]:
    """The application that a job is a part of, with its tenant: tenants may use equal names."""
    return job.tenant, job.app


def awaited_by(job: Job, table: JobTable) -> tuple[JobId, ...]:
    """Return the jobs it waits for that have not ended."""
    return tuple(other for other in job.after.jobs if other in table)


PAUSE_S = 5.0  # between two decisions of a policy with rounds, so that bursts are decided together


def could_start(table: JobTable, free: Capacity) -> bool:
    """True if a waiting job fits on what is free, on one of its kinds.

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
