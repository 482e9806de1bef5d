"""Which jobs leave a device because a promise to another is broken beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.core.knowledge.programs import Programs
from weft.core.model.job import Job, JobId, NodeId
from weft.core.plan.view import View

BROKEN_S = 3.0  # of a promise, although the neighbours were slowed
Device = tuple[NodeId, int]


def find_parted(
    view: View, programs: Programs, together: Mapping[Device, Sequence[int]]
) -> dict[JobId, str]:
    """Jobs that have to leave, one per device, with why they wait."""
    parted = {}
    for device, rows in together.items():
        kind = view.cluster.nodes[view.cluster.index[device[0]]].kind
        for row in rows:
            others = [other for other in rows if other != row and _can_leave(view, other)]
            why = _explain(view, programs, kind, row, rows) if others else ""
            if why:
                parted[view.job(max(others)).id] = why  # the last that came
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


# ---- Which jobs may share a device, by what is known about how they slow each other


WORTH = 1.05  # sum of speeds, each as a part of that alone: with turns it is 1
PROMISES = 2  # on one device: a third is made only where all are known to be kept


def can_promise(programs: Programs, job: Job, group: Sequence[Job], kind: str) -> bool:
    """Whether a job of the group that asked for a slowdown can be promised it.

    Two such jobs are tried together. With one more, all of them would break their promises while
    their speeds are measured, so that one waits until the programs are known.
    """
    promised = [member for member in group if member.slowdown is not None]
    if job.slowdown is None or len(promised) <= PROMISES:
        return True
    return all(_slowdown(programs, member, group, kind) is not None for member in promised)


def gets_on(programs: Programs, group: Sequence[Job], kind: str) -> bool:
    """Whether nothing that was measured speaks against this group."""
    known = list[float]()
    for member in group:
        slowdown = _slowdown(programs, member, group, kind)
        if slowdown is None:
            continue
        if member.slowdown is not None and slowdown > member.slowdown:
            return False
        known.append(slowdown)
    return len(known) < len(group) or sum(1.0 / slowdown for slowdown in known) >= WORTH


def _slowdown(programs: Programs, member: Job, group: Sequence[Job], kind: str) -> float | None:
    """How many times as long a step of a member takes in the group; None if not known."""
    return programs.slowdown(member, kind, [other for other in group if other is not member])
