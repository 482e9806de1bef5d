"""The mean of a user's past jobs, as PAI's simulator has it (Weng et al., NSDI 2022)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from weft.core.errors import bad_values
from weft.core.events.job_end import Ended
from weft.core.model.job import Job
from weft.predict.by_job import ByJob


@dataclass
class PaiHistory(ByJob):
    """Per user the mean of all ends, of the last `window`, or the mean of their reciprocals.

    `by=reciprocal` is as published: it grows for short jobs, and yet is sorted like the others. A
    user without ends counts as 1 s, so that newcomers come first.
    """

    by: Literal["mean", "moving", "reciprocal"] = "mean"
    window: int = 10

    label = "pai-history"

    def __post_init__(self) -> None:
        super().__init__()
        if self.window < 1:
            raise bad_values("pai-history", self, "window", "it is 1 or more")
        self._sums: dict[str, list[float]] = {}
        self._recent: dict[str, deque[float]] = {}

    def estimate(self, job: Job) -> float:
        """Estimate a job's length from its user's past jobs."""
        owner = job.owner
        if owner not in self._sums:
            return 1.0
        count, total, inverse = self._sums[owner]
        if self.by == "moving":
            return sum(self._recent[owner]) / len(self._recent[owner])
        return (total if self.by == "mean" else inverse) / count

    def note_end(self, ended: Ended) -> None:
        """Note the end of a user's job."""
        length = max(ended.length, 1e-9)
        owner = ended.job.owner
        sums = self._sums.setdefault(owner, [0.0, 0.0, 0.0])
        for i, more in enumerate((1.0, length, 1.0 / length)):
            sums[i] += more
        self._recent.setdefault(owner, deque(maxlen=self.window)).append(length)

    def save(self) -> Any:
        """Sums and the last ends of each user."""
        return {"sums": self._sums, "recent": {k: list(v) for k, v in self._recent.items()}}

    def load(self, saved: Any) -> None:
        self._sums = {owner: list(sums) for owner, sums in saved["sums"].items()}
        recent = saved["recent"].items()
        self._recent = {owner: deque(ends, maxlen=self.window) for owner, ends in recent}
