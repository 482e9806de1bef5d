"""Use of the cluster by tenants, day by day, and in windows beside their entitlement.

Windows are short at first. When there would be too many they become twice as long, and when they
are long enough the oldest go; so a page can draw five minutes as well as two weeks.

Days are whole ones in UTC. What jobs used stays when they are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

from weft.frozen import frozen

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
        """Count that many GPUs in use from `since` until `until`."""
        self._add(tenant, since, until, gpus, 0.0)

    def entitled(self, tenant: str, since: float, until: float, gpus: float) -> None:
        """Count that many GPUs of entitlement from `since` until `until`."""
        self._add(tenant, since, until, 0.0, gpus)

    def copy(self) -> ShareWindows:
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
        rows = {
            tenant: [[window, *pair] for window, pair in sums.items()]
            for tenant, sums in self._sums.items()
        }
        return {"width_s": self.width_s, "rows": rows}

    def load(self, saved: Mapping[str, Any]) -> None:
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


DAY_S = 86_400.0


@frozen
class DayUsage:
    """One tenant's day: GPU-seconds, jobs, starts after a job's first, missed deadlines.

    `entitled_s` are the GPU-seconds that it was entitled to.
    """

    tenant: str
    day: int
    gpu_s: float = 0.0
    jobs: int = 0
    restarts: int = 0
    missed: int = 0
    entitled_s: float = 0.0


class TenantUsage:
    """Every tenant's days, and what they had lately in shorter windows."""

    def __init__(self, days: Iterable[DayUsage] = ()) -> None:
        self.windows = ShareWindows()
        self._days: dict[str, dict[int, DayUsage]] = {}
        for usage in days:
            self._days.setdefault(usage.tenant, {})[usage.day] = usage

    def submitted(self, tenant: str, at: float) -> None:
        """Count a job that was submitted."""
        self._add(DayUsage(tenant, day_of(at), jobs=1))

    def restarted(self, tenant: str, at: float) -> None:
        """Count a job that ran again."""
        self._add(DayUsage(tenant, day_of(at), restarts=1))

    def missed(self, tenant: str, at: float) -> None:
        """A job's deadline came before its end."""
        self._add(DayUsage(tenant, day_of(at), missed=1))

    def spent(self, tenant: str, since: float, until: float, gpus: float) -> None:
        """Count that many GPUs in use from `since` until `until`."""
        self.windows.spent(tenant, since, until, gpus)
        if gpus:  # what was never in use may be from the beginning of time
            for day, seconds in _by_day(since, until):
                self._add(DayUsage(tenant, day, gpus * seconds))

    def entitled(self, tenant: str, since: float, until: float, gpus: float) -> None:
        """Count that many GPUs of entitlement from `since` until `until`."""
        self.windows.entitled(tenant, since, until, gpus)
        if gpus:
            for day, seconds in _by_day(since, until):
                self._add(DayUsage(tenant, day, entitled_s=gpus * seconds))

    def days(self) -> list[DayUsage]:
        """All of them."""
        return [usage for held in self._days.values() for usage in held.values()]

    def total(self, since: float = 0.0, until: float = inf) -> dict[str, DayUsage]:
        """Each tenant's sum over the days from that of `since` to that before `until`."""
        first, past = first_day(since), past_day(until)
        sums: dict[str, DayUsage] = {}
        for tenant, held in self._days.items():
            chosen = [usage for day, usage in held.items() if first <= day < past]
            if chosen:
                sums[tenant] = DayUsage(
                    tenant,
                    min(usage.day for usage in chosen),
                    sum(usage.gpu_s for usage in chosen),
                    sum(usage.jobs for usage in chosen),
                    sum(usage.restarts for usage in chosen),
                    sum(usage.missed for usage in chosen),
                    sum(usage.entitled_s for usage in chosen),
                )
        return sums

    def _add(self, more: DayUsage) -> None:
        held = self._days.setdefault(more.tenant, {})
        was = held.get(more.day)
        held[more.day] = more if was is None else _add(was, more)


def _add(was: DayUsage, more: DayUsage) -> DayUsage:
    return DayUsage(
        was.tenant,
        was.day,
        was.gpu_s + more.gpu_s,
        was.jobs + more.jobs,
        was.restarts + more.restarts,
        was.missed + more.missed,
        was.entitled_s + more.entitled_s,
    )


def _by_day(since: float, until: float) -> Iterator[tuple[int, float]]:
    """The days of a stretch, with the seconds in each."""
    while since < until:
        day = day_of(since)
        end = min(until, (day + 1) * DAY_S)
        yield day, end - since
        since = end


def day_of(at: float) -> int:
    """The number of a day since 1970-01-01, in UTC."""
    return int(at // DAY_S)


def first_day(since: float) -> int:
    """The day that `since` lies in."""
    return day_of(max(since, 0.0))


def past_day(until: float) -> float:
    """The first day that is not wholly or partly before `until`."""
    return inf if until == inf else -(-until // DAY_S)
