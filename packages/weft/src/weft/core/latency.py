"""Times of something done again and again, and whether it is being done now."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

# How often a number was how large, as Prometheus counts it.


class Histogram:
    """Counts up to each bound, and how many there were of which sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def save(self) -> dict[str, Any]:
        return {"counts": [*self._counts], "total": self.total}

    def load(self, saved: Mapping[str, Any]) -> None:
        if len(saved["counts"]) == len(self._counts):  # else they are of other bounds
            self._counts, self.total = [*saved["counts"]], saved["total"]

    def cumulative(self) -> list[tuple[float, int]]:
        """The counts of values at most each bound; the last is infinite."""
        counts, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            below += count
            counts.append((bound, below))
        return counts


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
        """Measure the time of one more call."""
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
