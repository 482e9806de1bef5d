"""Jobs that sleep in a simulation: what it costs them to lie down and to wake."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import inf
from zlib import crc32

from weft.core.asleep.rules import MemoryOf
from weft.core.asleep.sleeping import DOWN, UP, StopTimes
from weft.core.events.event import Slept
from weft.core.model.job import Allocation, Job, JobId
from weft.core.stops import Rung

LEAST_PART, MOST_PART = 0.1, 0.9  # of a device's memory that a job holds
UNKNOWN_GB = 32.0  # of a device of an unknown kind


def drawn_gb(job: Job, device_gb: float) -> float:
    """Device memory of a job in a trace that tells none: a part between 10 and 90 %, by its name.

    Small ones are commoner: the part is 0.1 + 0.8 u² with u drawn evenly, 0.37 on average.
    """
    hinted = job.hints.get("gpu_mem_gb")
    if hinted is not None:
        return hinted
    if device_gb == inf:
        device_gb = UNKNOWN_GB
    u = crc32(job.id.encode()) / 2**32
    return device_gb * (LEAST_PART + (MOST_PART - LEAST_PART) * u * u)


@dataclass(slots=True)
class SleepSimulation:
    """The jobs that sleep, and those about to.

    `gb` is what each job holds of a device.
    """

    gb: MemoryOf
    _times: StopTimes = field(default_factory=StopTimes)
    _asleep: dict[JobId, tuple[int, Rung]] = field(default_factory=dict)
    _falling: list[tuple[float, int, Slept]] = field(default_factory=list)
    _order: int = 0
    count: int = 0

    @property
    def next_at(self) -> float:
        """The time at which the next job is asleep."""
        return self._falling[0][0] if self._falling else float("inf")

    def lie_down(self, now: float, job: Job, attempt: int, rung: Rung, on: Allocation) -> None:
        """A run is over for a while; its devices are empty when it sleeps."""
        self._asleep[job.id] = (attempt, rung)
        self.count += 1
        size = self._size(job, on)
        down_s = 0.0
        if rung is Rung.SUSPEND:
            down_s = self._times.seconds(job, on.slices[0].node, rung, DOWN, size)
        self._order += 1
        slept = Slept(job.id, attempt, rung, down_s, size if rung is Rung.SUSPEND else 0.0)
        heapq.heappush(self._falling, (now + down_s, self._order, slept))

    def deepen(self, now: float, job: Job, attempt: int, rung: Rung, on: Allocation) -> bool:
        """Let a sleeping job sleep deeper; False if none sleeps."""
        if self._asleep.get(job.id, (None,))[0] != attempt:
            return False
        self.lie_down(now, job, attempt, rung, on)
        return True

    def take_asleep(self, now: float) -> list[Slept]:
        """The jobs that are asleep by now."""
        asleep = []
        while self._falling and self._falling[0][0] <= now:
            slept = heapq.heappop(self._falling)[2]
            if self._asleep.get(slept.job) == (slept.attempt, slept.rung):
                asleep.append(slept)
        return asleep

    def wake_s(self, job: Job, on: Allocation) -> float:
        """Seconds until a job that is woken gets on; it sleeps no more."""
        _, rung = self._asleep.pop(job.id)
        if rung is Rung.FREEZE:
            return 0.0
        size = self._size(job, on)
        return self._times.seconds(job, on.slices[0].node, rung, UP, size)

    def _size(self, job: Job, on: Allocation) -> float:
        return (self.gb(job, on) or 0.0) * on.gpus

    def on_attempt_end(self, job: JobId, attempt: int) -> bool:
        """An attempt is to end; whether it slept."""
        if self._asleep.get(job, (None,))[0] != attempt:
            return False
        del self._asleep[job]
        return True
