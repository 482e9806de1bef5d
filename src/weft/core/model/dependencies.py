"""Which active jobs wait for which others, and which wait in vain."""

from __future__ import annotations

from collections.abc import Container, Iterable

from weft.core.model.job import Job, JobId


class Dependencies:
    """Jobs by those they wait for; a fold of the jobs that came and of how others ended.

    `in_vain` are those that wait for what can no longer be, and why.
    """

    __slots__ = ("_active", "_waiting_for", "in_vain")

    def __init__(self) -> None:
        self._waiting_for: dict[JobId, list[Job]] = {}
        self._active: set[JobId] = set()  # of those that wait or waited for others
        self.in_vain: dict[JobId, str] = {}

    def add(self, job: Job, active: Container[object], ended: Iterable[tuple[JobId, bool]]) -> None:
        """A job came; `ended` are those that left, the last first, with whether they finished."""
        outcomes: dict[JobId, bool] | None = None
        if job.after.jobs:
            self._active.add(job.id)
        for other in job.after.jobs:
            if other in active:
                self._waiting_for.setdefault(other, []).append(job)
                continue
            if outcomes is None:
                outcomes = {}
                for job_id, finished in ended:
                    outcomes.setdefault(job_id, finished)
            if other in outcomes:
                self._judge(job, other, finished=outcomes[other])

    def end(self, job: JobId, *, finished: bool) -> None:
        """A job left: those that wait for it wait no more, or in vain."""
        self.in_vain.pop(job, None)
        self._active.discard(job)
        for waiting in self._waiting_for.pop(job, ()):
            self._judge(waiting, job, finished=finished)

    def _judge(self, job: Job, other: JobId, *, finished: bool) -> None:
        if job.id in self._active and job.after.is_in_vain(other, finished=finished):
            self.in_vain[job.id] = explain_in_vain(other, finished=finished)


def explain_in_vain(other: JobId, *, finished: bool) -> str:
    """Why a job can never start that waits for `other`."""
    if finished:
        return f"it was to run if {other} did not succeed, and {other} succeeded"
    return f"it was to run after {other} succeeded, and {other} did not"
