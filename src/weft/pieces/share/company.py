"""Which jobs may share a device, by what is known of how they slow each other."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.knowledge.programs import Programs
from weft.core.model.job import Job

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
