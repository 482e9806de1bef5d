"""Jobs that wait for something else than devices: other jobs, their turn in an app, a person."""

from __future__ import annotations

from collections import Counter

import numpy as np

from weft.core.model.job import Job, JobId
from weft.core.state.table import Bools, Table


def find_kept_back(table: Table) -> Bools:
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
        if awaited_by(job, table):
            kept_back[row] = True
        elif job.max_parallel:
            kept_back[row] = running[app_of(job)] >= job.max_parallel
            running[app_of(job)] += not kept_back[row]
    return kept_back


def app_of(job: Job) -> tuple[str, str]:
    """What a job is a part of; tenants may use the same names."""
    return job.tenant, job.app


def awaited_by(job: Job, table: Table) -> tuple[JobId, ...]:
    """Those of the jobs it waits for that have not ended."""
    return tuple(other for other in job.after.jobs if other in table)
