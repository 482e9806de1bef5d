"""The jobs of a sweep in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from weft.cli.view.words import ENDED
from weft.service.responses.answers import JobAnswer
from weft.service.responses.state_words import StateWord

# What a sweep is said to be: the first of these that any of its jobs is.
FIRST: tuple[StateWord, ...] = (
    *("running", "starting", "checkpointing", "preempted", "pending", "suspended"),
    *("failed", "cancelled", "succeeded"),
)


def fold_sweeps(jobs: Iterable[JobAnswer]) -> list[JobAnswer]:
    """A row for each job that stands alone, and one for all of a sweep, where its first was."""
    answers: dict[str, list[JobAnswer]] = {}
    for job in jobs:
        answers.setdefault(
            f"app {job.tenant} {job.app}" if job.app else f"job {job.id}", []
        ).append(job)
    return [some[0] if len(some) == 1 else fold(some) for some in answers.values()]


def fold(jobs: Sequence[JobAnswer]) -> JobAnswer:
    """Several jobs as one: what they hold together, and how many are in which state."""
    counts = Counter(job.state for job in jobs)
    counted = ", ".join(f"{counts[state]} {state}" for state in FIRST if state in counts)
    parts = [part for job in jobs for part in job.allocation or ()]
    started = [job.started for job in jobs if job.started is not None]
    ended = [job.ended for job in jobs if job.ended is not None]
    done = sum(
        1.0 if job.state in ENDED else min(max(job.progress or 0.0, 0.0), 1.0) for job in jobs
    )
    first = jobs[0]
    return replace(
        first,
        id=first.app,
        name=first.app,
        state=next(state for state in FIRST if state in counts),
        reason=f"{len(jobs)} jobs: {counted}",
        allocation=parts or None,
        started=min(started, default=None),
        ended=max(ended) if len(ended) == len(jobs) else None,
        restarts=sum(job.restarts for job in jobs),
        gpu_seconds=sum(job.gpu_seconds for job in jobs),
        goodput=sum(job.goodput or 0.0 for job in jobs) or None,
        progress=done / len(jobs),
        batch=None,
    )
