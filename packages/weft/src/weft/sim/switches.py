"""Jobs that change their devices as they train: "make before break", as `weft_train` does it.

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
from weft.core.model.job import Allocation, Job, JobId, NodeId


@dataclass(slots=True)
class SimulatedResizes:
    """Jobs that were stopped, with time and allocation, by submission number.

    A job that is started again as soon as it has left, `checkpoint_s` after it was stopped, and on
    some of the same devices, pays `resize_s` and no restart; `count` is how often that was so.
    """

    resize_s: float
    checkpoint_s: float = 0.0
    count: int = 0
    _stopped: dict[int, tuple[float, Allocation]] = field(default_factory=dict)

    def on_stop(self, seq: int, now: float, on: Allocation) -> None:
        """A job is asked to leave."""
        self._stopped[seq] = (now, on)

    def goes_on(self, seq: int, now: float, on: Allocation) -> bool:
        """True if a start is but a change of size."""
        at, before = self._stopped.pop(seq, (None, on))
        if at is None or now > at + self.checkpoint_s + 1e-6:
            return False
        held = {(part.node, gpu) for part in before.slices for gpu in part.gpus}
        same = any((part.node, gpu) in held for part in on.slices for gpu in part.gpus)
        self.count += same
        return same


# Jobs that are suspended to the memory of their host instead of being checkpointed.
#
# Going on where a job ran last costs the copy back to the device; elsewhere it is a restart. The
# device is handed over as well when another job was there before (Xiao et al., Gandiva, OSDI
# 2018, section 4.1: below 100 ms for most jobs, about a second for large ones).


@dataclass(slots=True)
class Suspension:
    """The last place of every job, by submission number, and which devices were used."""

    resume_s: float
    _last: dict[int, frozenset[NodeId]] = field(default_factory=dict)
    _used: set[tuple[NodeId, int]] = field(default_factory=set)

    def forget_memory(self, seq: int) -> None:
        """A job died: nothing of it is left in memory anywhere."""
        self._last[seq] = frozenset()

    def resume_cost_s(self, seq: int, on: Allocation, restart_s: float) -> float:
        """Seconds without progress at the beginning of this run."""
        nodes = frozenset(part.node for part in on.slices)
        devices = {(part.node, gpu) for part in on.slices for gpu in part.gpus}
        before = self._last.get(seq)
        used = not self._used.isdisjoint(devices)
        self._last[seq] = nodes
        self._used |= devices
        if before is not None:
            return self.resume_s if before == nodes else restart_s
        return self.resume_s if used else 0.0


CostsOf = Callable[[Job], Costs]


@dataclass(slots=True)
class Switches:
    """Changes getting ready, by job, and attempts that come to train.

    `costs_of` says what each job pays. Of several changes of a job only the last one counts.
    """

    costs_of: CostsOf
    _due: list[tuple[float, int, JobId]] = field(default_factory=list)
    _asked: dict[JobId, tuple[int, Resize, float]] = field(default_factory=dict)
    _ready: list[tuple[float, int, JobId, int]] = field(default_factory=list)
    _order: int = 0

    @property
    def next_at(self) -> float:
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

    def schedule_change(self, at: float, resize: Resize) -> None:
        """A change is ready at `at`."""
        self._order += 1
        self._asked[resize.job.id] = (self._order, resize, at)
        heapq.heappush(self._due, (at, self._order, resize.job.id))

    def pending(self, job: JobId) -> tuple[Allocation, float] | None:
        """The allocation that a job is about to have, and when; None if none."""
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
