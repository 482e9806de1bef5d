"""The classes of jobs by name: what a job file says, and the number that policies order by."""

from __future__ import annotations

from typing import Literal

from weft.core.model.job import LOWEST, Job

PriorityWord = Literal["guaranteed", "normal", "spot", "opportunistic"]
PRIORITIES: dict[PriorityWord, float] = {
    "guaranteed": 1.0,
    "normal": 0.0,
    "spot": -0.5,
    "opportunistic": LOWEST,
}


def priority_word(job: Job) -> PriorityWord:
    """The class of a job: that with the nearest number."""
    return min(PRIORITIES, key=lambda word: abs(PRIORITIES[word] - job.priority))
