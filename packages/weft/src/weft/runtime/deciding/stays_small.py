"""Reasons why a running job that could use more devices does not get those that are free."""

from __future__ import annotations

from weft.core.model.job import Allocation, Job
from weft.core.plan.about import Controls
from weft.core.plan.reasons import asks_for, device_word
from weft.runtime.deciding.waiting import WaitExplainer
from weft.stack.windows import kept_away


def why_small(waits: WaitExplainer, job: Job, on: Allocation) -> str:
    """One sentence; empty for a job that is as large as it may be, or beside nothing free."""
    node = on.slices[0].node if on.slices else ""
    if on.gpus >= job.demand.max or job.demand.nodes or node not in waits.free.cluster.index:
        return ""
    kind = waits.free.cluster.kind_of(on)
    with kept_away(waits.free, [w for w in waits.windows if not w.admits(job, waits.now)]):
        free = waits.free.idle(kind)
    if not free:
        return ""
    why = "it grows only where that saves more time than the change costs"
    if Controls.COUNT not in waits.about.controls:
        why = f"policy {waits.policy!r} leaves jobs at the size they ask for"
    elif not job.stoppable:
        why = "a job that may not be stopped keeps its size"
    most = asks_for(job.demand.max, (kind,) if device_word((kind,)) != "GPU" else ())
    are = "is" if free == 1 else "are"
    return f"runs on {on.gpus} of up to {most}; {free} {are} free, but {why}"
