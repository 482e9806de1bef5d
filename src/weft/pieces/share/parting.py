"""Who leaves a device because a promise that somebody asked for is broken beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.core.knowledge.programs import Programs
from weft.core.model.job import JobId, NodeId
from weft.core.plan.view import View

BROKEN_S = 3.0  # of a promise, although the neighbours were slowed
Device = tuple[NodeId, int]


def find_parted(
    view: View, programs: Programs, together: Mapping[Device, Sequence[int]]
) -> dict[JobId, str]:
    """Jobs that have to leave, one a device, with why they wait."""
    parted = {}
    for device, rows in together.items():
        kind = view.cluster.nodes[view.cluster.index[device[0]]].kind
        for row in rows:
            others = [other for other in rows if other != row and _can_leave(view, other)]
            why = _explain(view, programs, kind, row, rows) if others else ""
            if why:
                parted[view.job(max(others)).id] = why  # the last who came
                break
    return parted


def _explain(view: View, programs: Programs, kind: str, row: int, rows: Sequence[int]) -> str:
    """Why the neighbours of a row break its promise; empty if they do not."""
    job = view.job(row)
    if job.slowdown is None or programs.broken_s(job) < BROKEN_S:
        return ""
    slowdown = programs.slowdown(job, kind, [view.job(other) for other in rows if other != row])
    if slowdown is None or slowdown <= job.slowdown:
        return ""
    return (
        f"waits for another GPU: beside it {job.id} took {slowdown:.2f} times as long as alone, "
        f"and was promised {job.slowdown:g}"
    )


def _can_leave(view: View, row: int) -> bool:
    """Whether a job may be stopped, and asked for no promise itself."""
    job = view.job(row)
    return job.preemptible and job.slowdown is None
