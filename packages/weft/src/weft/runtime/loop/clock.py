"""The service's time: seconds since the epoch that never go back, faster where simulated."""

from __future__ import annotations

import time
from collections.abc import Callable

Seconds = Callable[[], float]

TICK_S = 1e-6  # two turns are never at the same time, so that a log says which was which


class Clock:
    """Starts at the wall clock's time, or at `after` where that is ahead.

    `seconds` tells how time passes; tests pass it faster.
    """

    def __init__(
        self, speed: float = 1.0, after: float = 0.0, seconds: Seconds = time.monotonic
    ) -> None:
        self.speed = speed
        self._seconds = seconds
        self._last = after
        self._began = max(time.time(), after)
        self._since = seconds()

    @property
    def now(self) -> float:
        """The time, not before the last tick."""
        return max(self._last, self._began + (self._seconds() - self._since) * self.speed)

    def tick(self) -> float:
        """The time of a turn, later than that of the one before."""
        self._last = max(self.now, self._last + TICK_S)
        return self._last

    def seconds_until(self, at: float | None) -> float | None:
        """Seconds of the wall clock until `at`, none of them negative; None for never."""
        return None if at is None else max((at - self.now) / self.speed, 0.0)
