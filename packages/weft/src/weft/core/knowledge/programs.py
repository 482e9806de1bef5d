"""The memory of programs: jobs that run one script in one way are alike.

A job that says nothing of itself is still run again and again with other numbers: what one run
held of a GPU's memory, and how it got on beside others, is what the next one will.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Protocol

from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.model.job import Job
from weft.core.model.launch import SoftwareKind

_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")
_LONGEST, _LOOKED_AT = 500, 10_000  # characters of a program's name, and of its command


def program_of(job: Job) -> str:
    """Script, arguments without their numbers, and model; a job without a command is its own."""
    launch = job.launch
    if launch is None or not launch.command:
        return f"model {job.model}" if job.model else f"job {job.id}"
    words = [PurePosixPath(launch.command[0]).name, *launch.command[1:]]
    plain = _NUMBER.sub("#", " ".join((launch.workdir, *words))[:_LOOKED_AT])
    return f"{plain[:_LONGEST]} {job.model}".strip()


def is_guarded(job: Job) -> bool:
    """True if a job's allocations can be made to wait where the engine does that.

    A container has its own files, so that nothing of ours is loaded there.
    """
    launch = job.launch
    software = None if launch is None else launch.software
    return software is None or software.kind is not SoftwareKind.IMAGE


def can_wait(job: Job) -> bool:
    """True if a job's memory waits where the engine does that: it declared no limit."""
    return job.gpu_mem_gb is None and is_guarded(job)


class Programs(Protocol):
    """Memory and neighbours of jobs, as seen by program and GPU kind."""

    def need_gb(self, job: Job, kind: str) -> float | None:
        """Memory of each of its devices that a job needs, with a margin; None while not known."""
        ...

    def waits(self, job: Job) -> bool:
        """True if its allocations wait for memory: it needs no limit, and no room for its peak."""
        ...

    def usual_gb(self, job: Job, kind: str) -> float | None:
        """Memory that it holds all the time, with a margin; None while not known."""
        ...

    def held_gb(self, job: Job) -> float:
        """The most memory that a running job was seen to hold; 0 before it was measured."""
        ...

    def must_be_alone(self, job: Job, kind: str) -> bool:
        """True if it failed for memory or a GPU fault beside others: it has its devices alone."""
        ...

    def why_apart(self, job: Job, kind: str, device_gb: float) -> str:
        """The reason why it must not be a client of MPS with others; empty if it may."""
        ...

    def slowdown(self, job: Job, kind: str, beside: Sequence[Job]) -> float | None:
        """The factor by which a step takes longer beside these; None where that was never seen."""
        ...

    def promise(self, job: Job) -> float | None:
        """The factor by which its steps may take longer beside others; None for any."""
        ...

    def observe(self, job: Job, kind: str, report: Report, attempt: AttemptSource) -> None:
        """Learn from a report of a running job."""
        ...

    def observe_peak(self, job: Job, kind: str, peak_gb: float) -> None:
        """A running job was seen to hold this much, and is not likely to need more."""
        ...

    def pace(self, job: Job) -> float | None:
        """The part of its speed alone that a running job was last measured to keep; None before."""
        ...

    def broken_s(self, job: Job) -> float:
        """Seconds in which a running job was slower than it was promised."""
        ...

    def observe_pace(
        self, job: Job, kind: str, pace: float, beside: Sequence[Job], broken_s: float = 0.0
    ) -> None:
        """A job was measured to keep this part of its speed alone beside these."""
        ...

    def observe_out_of_memory(self, job: Job, kind: str) -> None:
        """A job ran out of memory while others had a part of its devices."""
        ...

    def observe_fault(self, job: Job, *, beside: bool) -> None:
        """A fault of a GPU ended a job, alone or `beside` others, and may have been its own."""
        ...

    def forget(self, job: Job) -> None:
        """A job has left; what its program did is kept."""
        ...

    def save(self) -> Any:
        """Everything learnt, as values that JSON has."""
        ...

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        ...
