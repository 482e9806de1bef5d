"""Jobs that change their devices as they train: "make before break", as `weft.train` does it.

New processes start beside those that train; then there is one pause, in which they are sent the
state and the group is formed again. A job that only gives devices up prepares nothing and sends
nothing. A job that is not training yet is stopped and started like any other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.core.events.actions import Resize
from weft.core.knowledge.costs import Costs
from weft.core.model.job import Allocation, Job, JobId

CostsOf = Callable[[Job], Costs]


@dataclass(slots=True)
class Switches:
    """What is getting ready: changes by job, and attempts that come to train.

    `costs_of` says what each job pays. Of several changes of a job only the last one counts.
    """

    costs_of: CostsOf
    _due: list[tuple[float, int, JobId]] = field(default_factory=list)
    _asked: dict[JobId, tuple[int, Resize, float]] = field(default_factory=dict)
    _ready: list[tuple[float, int, JobId, int]] = field(default_factory=list)
    _order: int = 0

    @property
    def next_at(self) -> float:
        """When something happens next."""
        while self._due and not self._counts(self._due[0]):
            heapq.heappop(self._due)
        return min(
            self._due[0][0] if self._due else float("inf"),
            self._ready[0][0] if self._ready else float("inf"),
        )

    def expect_ready(self, at: float, job: JobId, attempt: int) -> None:
        """An attempt begins to train at `at`."""
        self._order += 1
        heapq.heappush(self._ready, (at, self._order, job, attempt))

    def take_ready(self, now: float) -> list[tuple[JobId, int]]:
        """Attempts that have begun to train."""
        ready = []
        while self._ready and self._ready[0][0] <= now:
            _, _, job, attempt = heapq.heappop(self._ready)
            ready.append((job, attempt))
        return ready

    def ask(self, at: float, resize: Resize) -> None:
        """A change is ready at `at`."""
        self._order += 1
        self._asked[resize.job.id] = (self._order, resize, at)
        heapq.heappush(self._due, (at, self._order, resize.job.id))

    def pending(self, job: JobId) -> tuple[Allocation, float] | None:
        """Where a job is about to go, and when; None if nowhere."""
        asked = self._asked.get(job)
        return None if asked is None else (asked[1].to, asked[2])

    def take_due(self, now: float) -> list[Resize]:
        """Changes that are ready."""
        resizes = []
        while self._due and self._due[0][0] <= now:
            entry = heapq.heappop(self._due)
            if self._counts(entry):
                resizes.append(self._asked.pop(entry[2])[1])
        return resizes

    def forget(self, job: JobId) -> None:
        """A job was stopped or has ended."""
        self._asked.pop(job, None)

    def _counts(self, entry: tuple[float, int, JobId]) -> bool:
        asked = self._asked.get(entry[2])
        return asked is not None and asked[0] == entry[1]
