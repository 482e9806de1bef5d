"""Wishes: what a driver should make happen. Each is answered by an event."""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.model.job import Allocation, Job, JobId, MemoryPlace
from weft.core.stops import Rung
from weft.frozen import frozen


@frozen
class Start:
    """Run `job` on exactly `on`; answered by Started or StartFailed."""

    job: Job
    on: Allocation
    attempt: int


@frozen
class Stop:
    """Let an attempt checkpoint and leave; answered by Stopped."""

    job: JobId
    attempt: int


@frozen
class Adjust:
    """Change batch, phase, host share, tier or time shift of a running attempt where it is."""

    job: JobId
    attempt: int
    to: Allocation


@frozen
class Resize:
    """Give a running attempt the devices of `to` while it trains; answered by Resized.

    Or by ResizeFailed. Epochs count the changes of an attempt from 1; of several that were not
    answered only the last one counts.
    """

    job: Job
    attempt: int
    to: Allocation
    epoch: int


@frozen
class Sleep:
    """Put a running attempt to sleep where it is; answered by Slept or SleepFailed."""

    job: JobId
    attempt: int
    rung: Rung


@frozen
class Resume:
    """Let an attempt that sleeps go on, on the devices of `on` where it sleeps; answered by Awoke.

    Other terms than before may be among `on`.
    """

    job: Job
    on: Allocation
    attempt: int


@frozen
class OrderMemory:
    """Let jobs have device memory that becomes free in this order; not answered.

    It replaces the order before: the lowest numbers first, last those without any.
    """

    order: Mapping[JobId, MemoryPlace]


@frozen
class Reject:
    """Tell the submitter that a job can never run."""

    job: JobId
    reason: str


@frozen
class Wake:
    """Send Woken at `at`; replaces the previous wish, None cancels it."""

    at: float | None


Action = Start | Stop | Adjust | Resize | Sleep | Resume | OrderMemory | Reject | Wake
