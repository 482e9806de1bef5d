"""Active jobs that wait for others, and those that wait in vain."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from weft.core.model.job import After, Job, JobId


@dataclass(slots=True)
class _Group:
    """The active jobs that wait for the same; `why` once that can no longer be."""

    after: After
    jobs: dict[JobId, None]
    why: str = ""


class Dependencies:
    """Jobs by those they wait for; a fold of the jobs that came and of how others ended.

    `in_vain` are those that wait for what can no longer be, and why. Jobs with one `After` together
    are one group, such as those of a sweep: a thousand that wait for a thousand others are two
    thousand entries and not a million.
    """

    __slots__ = ("_group_of", "_groups", "_waiting_for", "in_vain")

    def __init__(self) -> None:
        # Each awaited job: the groups, with the outcome that would make them wait in vain.
        self._waiting_for: dict[JobId, list[tuple[_Group, bool | None]]] = {}
        self._groups: dict[int, _Group] = {}  # by the `After` itself, which its group keeps
        self._group_of: dict[JobId, _Group] = {}
        self.in_vain: dict[JobId, str] = {}

    def add(self, job: Job, active: Container[object], ended: Mapping[JobId, bool]) -> None:
        """A job came; `ended` are those that left lately, with whether they finished."""
        if not job.after:
            return
        group = self._groups.get(id(job.after))
        if group is None or group.after is not job.after:  # a copy has its jobs elsewhere
            group = self._groups[id(job.after)] = self._make_group(job.after, active, ended)
        group.jobs[job.id] = None
        self._group_of[job.id] = group
        if group.why:
            self.in_vain[job.id] = group.why

    def _make_group(
        self, after: After, active: Container[object], ended: Mapping[JobId, bool]
    ) -> _Group:
        group = _Group(after, {})
        for other, wrong in after.wrong_ends():
            if other in active:
                self._waiting_for.setdefault(other, []).append((group, wrong))
            elif other in ended and wrong is ended[other]:
                group.why = explain_in_vain(other, finished=ended[other])
        return group

    def remove_ended(self, job: JobId, *, finished: bool) -> None:
        """A job left: those that wait for it wait no more, or in vain."""
        self.in_vain.pop(job, None)
        group = self._group_of.pop(job, None)
        if group is not None:
            del group.jobs[job]
            if not group.jobs and self._groups.get(id(group.after)) is group:
                del self._groups[id(group.after)]
        for waiting, wrong in self._waiting_for.pop(job, ()):
            if wrong is finished:
                waiting.why = explain_in_vain(job, finished=finished)
                self.in_vain |= dict.fromkeys(waiting.jobs, waiting.why)


def explain_in_vain(other: JobId, *, finished: bool) -> str:
    """The reason why a job that waits for `other` can never start."""
    if finished:
        return f"it was to run if {other} did not succeed, and {other} succeeded"
    return f"it was to run after {other} succeeded, and {other} did not"
