"""One job as the judge sees it: its attempts, why it waits, and what it used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from weft.core.model.job import Allocation, Job
from weft.core.plan.reasons import Blocker
from weft.judge.devices import gpus_of

LONGEST_BACKOFF_S = 300.0


@dataclass(slots=True)
class Attempt:
    """One promise of devices: `started` while it runs there, `since` when its rate last changed.

    `leaving`: it was asked to go. `besides` is what it holds until a live change is made.
    `asleep`: it holds no device's time; `falling`: it is to fall asleep. `changed` is when its
    devices last changed as it ran.
    """

    number: int
    on: Allocation
    promised: float
    started: float | None = None
    leaving: bool = False
    besides: Allocation | None = None
    asleep: bool = False
    changed: float = 0.0
    falling: bool = False

    @property
    def holds(self) -> bool:
        """True if processes of it are on its devices."""
        return self.started is not None and not self.asleep


@dataclass(slots=True)
class GivenReason:
    """The reason that a decision gave for a job's wait, at a line of the log."""

    text: str
    blocker: Blocker
    numbers: Mapping[str, object]
    at: float
    line: int


@dataclass(slots=True)
class Life:
    """One job, from its submission to its end."""

    job: Job
    submitted: float
    line: int
    count: int = 0  # attempts so far
    epoch: int = 0
    current: int | None = None  # the attempt that is promised devices
    attempts: dict[int, Attempt] = field(default_factory=dict)  # those that are not over
    outcome: str = ""
    ended: float | None = None
    suspended: bool = False
    first_start: float | None = None
    starts: int = 0
    gpu_s: float = 0.0
    ran_s: float = 0.0
    counted: float = 0.0  # up to when GPU time is counted
    retries: int = 0
    failed: float = -inf
    saved: float | None = None
    reason: GivenReason | None = None
    deadline_promised: int | None = None  # the line in which it was

    @property
    def on(self) -> Allocation | None:
        """The allocation that it is promised now."""
        return None if self.current is None else self.attempts[self.current].on

    @property
    def waits(self) -> bool:
        """True if it has not ended and is promised nothing."""
        return not self.outcome and self.current is None

    @property
    def rate(self) -> float:
        """GPUs that it uses now."""
        held = (a for a in self.attempts.values() if a.holds)
        return sum(gpus_of(attempt.on, attempt.besides) for attempt in held)

    def count_until(self, at: float) -> None:
        """Add the GPU time since the last change."""
        seconds = max(at - self.counted, 0.0)
        self.gpu_s += self.rate * seconds
        self.ran_s += seconds * any(attempt.holds for attempt in self.attempts.values())
        self.counted = at

    def pause_ends(self) -> float:
        """Return when a retry may begin after a failure."""
        if not self.retries or self.job.launch is None:
            return -inf
        pause_s = self.job.launch.backoff_s * 2.0 ** min(self.retries - 1, 30)
        return self.failed + min(pause_s, LONGEST_BACKOFF_S)
