"""How busy the cluster will be: packing pays only when jobs queue."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from weft.frozen import frozen

BIN_S = 600.0
BINS = 5


def busy(bins: Sequence[float], quiet: float) -> bool:
    """Whether the mean of some bins of submissions is above `quiet`: packing goes on."""
    return sum(bins) / len(bins) > quiet


@frozen
class Arrivals:
    """Submissions of the last five ten-minute bins, when the first came, and how many in all."""

    recent: tuple[float, ...] = ()
    first: float | None = None
    seen: float = 0.0

    def then(self, submitted: Sequence[float], now: float, seen: float) -> Arrivals:
        """The same after some more submissions."""
        first = self.first
        if first is None and submitted:
            first = min(submitted)
        since = now - BINS * BIN_S
        recent = tuple(at for at in (*self.recent, *submitted) if at > since)
        return Arrivals(recent, first, seen)

    def bins(self, now: float) -> list[float]:
        """Submissions in each of the last bins, latest first; fewer while the log is young."""
        age = 0.0 if self.first is None else now - self.first
        counts = [0.0] * min(BINS, max(1, ceil(age / BIN_S)))
        for at in self.recent:
            counts[min(int((now - at) // BIN_S), len(counts) - 1)] += 1.0
        return counts
