"""What tenants used of what they were entitled to, lately: a few hundred windows of time.

Windows are short at first. When there would be too many they become twice as long, and when they
are long enough the oldest go; so a page can draw five minutes as well as two weeks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHORTEST_S, LONGEST_S = 10.0, 5120.0
MOST = 240
Pair = tuple[float, float]
NOTHING: Pair = (0.0, 0.0)


class ShareWindows:
    """GPU-seconds (used, entitled to) of every tenant, by window."""

    def __init__(self) -> None:
        self.width_s = SHORTEST_S
        self._first = self._last = 0
        self._sums: dict[str, dict[int, Pair]] = {}

    def spent(self, tenant: str, since: float, until: float, gpus: float) -> None:
        """That many GPUs were in use from `since` until `until`."""
        self._add(tenant, since, until, gpus, 0.0)

    def entitled(self, tenant: str, since: float, until: float, gpus: float) -> None:
        """It was entitled to that many GPUs from `since` until `until`."""
        self._add(tenant, since, until, 0.0, gpus)

    def copy(self) -> ShareWindows:
        """Another with the same sums."""
        other = ShareWindows()
        other.width_s, other._first, other._last = self.width_s, self._first, self._last
        other._sums = {tenant: dict(sums) for tenant, sums in self._sums.items()}
        return other

    def windows(self) -> list[int]:
        """The numbers of all windows, without gaps: each begins at its number times the width."""
        return list(range(self._first, self._last + 1)) if self._sums else []

    def sums(self) -> Mapping[str, Mapping[int, Pair]]:
        """GPU-seconds of every tenant by the number of the window; empty ones may be missing."""
        return self._sums

    def save(self) -> dict[str, Any]:
        """As plain values."""
        rows = {
            tenant: [[window, *pair] for window, pair in sums.items()]
            for tenant, sums in self._sums.items()
        }
        return {"width_s": self.width_s, "rows": rows}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on from what `save` made."""
        self.width_s = saved["width_s"]
        self._sums = {
            tenant: {window: (used, due) for window, used, due in rows}
            for tenant, rows in saved["rows"].items()
        }
        every = [window for sums in self._sums.values() for window in sums]
        self._first, self._last = min(every, default=0), max(every, default=0)

    def _add(self, tenant: str, since: float, until: float, used: float, due: float) -> None:
        if until <= since or not (used or due):
            return
        self._make_room(since, until)
        sums = self._sums.setdefault(tenant, {})
        since = max(since, self._first * self.width_s)
        while since < until:
            window = int(since // self.width_s)
            end = min(until, (window + 1) * self.width_s)
            was = sums.get(window, NOTHING)
            sums[window] = was[0] + used * (end - since), was[1] + due * (end - since)
            since = end

    def _make_room(self, since: float, until: float) -> None:
        """Longer windows, or fewer of the past, so that one that ends at `until` has a place."""
        while True:
            begin, end = int(since // self.width_s), int(until // self.width_s)
            first = min(begin, self._first) if self._sums else begin
            last = max(end, self._last) if self._sums else end
            if last - first < MOST or self.width_s >= LONGEST_S:
                break
            self._double()
        self._first, self._last = max(first, last - MOST + 1), last
        if first < self._first:
            self._forget()

    def _forget(self) -> None:
        """Leave out what is before the first window."""
        for tenant, sums in list(self._sums.items()):
            self._sums[tenant] = {w: pair for w, pair in sums.items() if w >= self._first}
            if not self._sums[tenant]:
                del self._sums[tenant]

    def _double(self) -> None:
        self.width_s *= 2.0
        self._first, self._last = self._first // 2, self._last // 2
        for tenant, sums in self._sums.items():
            merged: dict[int, Pair] = {}
            for window, (used, due) in sums.items():
                was = merged.get(window // 2, NOTHING)
                merged[window // 2] = was[0] + used, was[1] + due
            self._sums[tenant] = merged
