"""No GPU is idle while a job could use it, unless the policy says why: `About.idles`.

A job could use idle GPUs if it waits and fits there in the least size that the
policy may give it, or if it runs, may be resized and takes more than it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from weft.core.model.job import Allocation, Job
from weft.core.plan.about import Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.pieces.place.gangs import fewest_nodes


def find_idle(view: View, plan: Plan, controls: Controls) -> str:
    """The job that could use what the plan leaves idle; empty if none, or the plan is unsound."""
    mark = view.free.mark()
    view.release(plan.changes)
    for on in plan.changes.values():
        if on is not None and view.free.fits(on):
            view.free.take(on)
    after = view.after(plan)
    pairs = ((job, after.get(job.id)) for job in view.table.jobs if job.id not in plan.rejected)
    user = find_user(pairs, view.free, controls)
    view.free.rollback(mark)
    return user


def find_user(
    jobs: Iterable[tuple[Job, Allocation | None]], free: Capacity, controls: Controls
) -> str:
    """The first of these jobs, with what they hold, that could use an idle GPU."""
    mark = free.mark()
    _take_shared(free)
    sized = Controls.COUNT in controls
    trouble = ""
    for job, on in jobs if free.idle() else ():
        if on is None and _starts(job, free, sized=sized):
            trouble = f"{job.id} waits although it could start on {free.idle_by_kind()} idle GPUs"
        elif on is not None and sized and _grows(job, on, free):
            most = job.demand.max
            trouble = f"{job.id} holds {on.gpus} of {most} beside {free.idle_by_kind()} idle GPUs"
        if trouble:
            break
    free.rollback(mark)
    return trouble


def _take_shared(free: Capacity) -> None:
    """Devices that opportunistic jobs are on count as taken."""
    for node in range(len(free.cluster.nodes)):
        if shared := free.idle_mask(node) & ~free.empty_mask(node):
            part = replace(free.slice_of(node, shared), cpus=0.0, mem_gb=0.0)
            free.take(Allocation((part,)))


def _starts(job: Job, free: Capacity, *, sized: bool) -> bool:
    least = job.demand.min if sized else job.demand.gpus
    place = fewest_nodes(replace(job, demand=replace(job.demand, gpus=least, min=least)), free)
    return place is not None and free.fits(place)


def _grows(job: Job, on: Allocation, free: Capacity) -> bool:
    more = on.gpus < job.demand.max and job.stoppable and not job.demand.nodes
    return more and free.idle(free.cluster.kind_of(on)) > 0
