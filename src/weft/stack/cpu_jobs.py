"""Jobs without GPUs: placed on the first machine with room, beside whatever policy there is.

No policy sees them. They have an account of their own in the ledger, so that they never keep GPUs
idle: what jobs with GPUs are promised of a host is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Column
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.stack.wrapper import Wrapper

ONE_CPU = 1.0  # of a job that does not say how many it needs


@frozen
class CpuJobs(Wrapper):
    """Place jobs without GPUs first come, first served; `inner` decides about all others."""

    def decide(self, view: View) -> Plan:
        """The inner policy's plan, and where jobs without GPUs start."""
        if not view.table.conditional:
            return self.inner.decide(view)
        alone: Bools = view.table.column(Column.MAX) == 0.0
        if not alone.any():
            return self.inner.decide(view)
        mark = view.free.mark()
        plan = self.inner.decide(view.without(alone))
        view.free.rollback(mark)
        return replace(plan, changes={**plan.changes, **_place(view, alone)})


def place_on_host(free: Capacity, job: Job) -> Allocation | None:
    """The first machine that has what a job without GPUs asks for; None if none has."""
    for node in free.cluster.nodes:
        if job.demand.kinds and node.kind not in job.demand.kinds:
            continue
        on = Allocation((Slice(node.id, (), job.cpus or ONE_CPU, job.mem_gb or 0.0),))
        if free.fits(on):
            return on
    return None


def _place(view: View, alone: Bools) -> Mapping[JobId, Allocation]:
    """Where those that wait start, by priority and then in order of submission."""
    table, placed = view.table, dict[JobId, Allocation]()
    for row in view.ranked(-table.column(Column.PRIORITY), among=alone & _waiting(view)):
        on = place_on_host(view.free, table.jobs[row])
        if on is not None:
            view.free.take(on)
            placed[table.jobs[row].id] = on
    return placed


def _waiting(view: View) -> Bools:
    return np.array([on is None for on in view.table.allocations], dtype=bool)
