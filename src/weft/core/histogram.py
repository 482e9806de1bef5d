"""How often a number was how large, as Prometheus counts it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts up to each bound, and how many there were of which sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        """All of them."""
        return sum(self._counts)

    def add(self, value: float) -> None:
        """One more."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[float, int]]:
        """How many were at most each bound; the last is infinite."""
        counts, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            below += count
            counts.append((bound, below))
        return counts
