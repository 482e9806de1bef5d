"""The length of the last job of a user and size."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from weft.core.events.job_end import Ended
from weft.core.model.job import Job
from weft.predict.by_job import ByJob


def _key(job: Job) -> str:
    return "\0".join((job.tenant, job.user, f"{job.demand.gpus * job.demand.share:g}"))


@dataclass
class Last(ByJob):
    """The last end of a job's user and size, else of any user: simple, and hard to beat."""

    label = "last"

    def __post_init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def estimate(self, job: Job) -> float:
        """Return the last length of similar jobs, else of all jobs."""
        return self._last.get(_key(job), self._last.get("", inf))

    def note_end(self, ended: Ended) -> None:
        self._last[_key(ended.job)] = self._last[""] = max(ended.length, 1.0)

    def save(self) -> Any:
        return {"last": self._last}

    def load(self, saved: Any) -> None:
        self._last = dict(saved["last"])
