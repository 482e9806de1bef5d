"""How long something takes that is done again and again, and whether it is being done now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.core.histogram import Histogram

BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class Latency:
    """Times of one kind of work; read from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self.count = 0
        self.total_s = 0.0
        self.last_s = 0.0
        self.longest_s = 0.0
        self.times = Histogram(BOUNDS_S)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Once more."""
        began = self._since = self._clock()
        try:
            yield
        finally:
            self._since = None
            self.count += 1
            self.last_s = self._clock() - began
            self.total_s += self.last_s
            self.longest_s = max(self.longest_s, self.last_s)
            self.times.add(self.last_s)

    def busy_s(self) -> float:
        """For how long it has been going on now; 0 while nothing is."""
        since = self._since
        return 0.0 if since is None else self._clock() - since
