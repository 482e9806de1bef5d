"""What tenants used, day by day: folded as meters turn, so that no account is ever summed up again.

Days are whole ones in UTC. What jobs used stays when they are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from weft.frozen import frozen
from weft.runtime.records.share_windows import ShareWindows

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


class Usage:
    """Every tenant's days, and what they had lately in shorter windows."""

    def __init__(self, days: Iterable[DayUsage] = ()) -> None:
        self.windows = ShareWindows()
        self._days: dict[str, dict[int, DayUsage]] = {}
        for usage in days:
            self._days.setdefault(usage.tenant, {})[usage.day] = usage

    def submitted(self, tenant: str, at: float) -> None:
        """A job was submitted."""
        self._add(DayUsage(tenant, day_of(at), jobs=1))

    def restarted(self, tenant: str, at: float) -> None:
        """A job ran again."""
        self._add(DayUsage(tenant, day_of(at), restarts=1))

    def missed(self, tenant: str, at: float) -> None:
        """A job's deadline came before its end."""
        self._add(DayUsage(tenant, day_of(at), missed=1))

    def spent(self, tenant: str, since: float, until: float, gpus: float) -> None:
        """That many GPUs were in use from `since` until `until`."""
        self.windows.spent(tenant, since, until, gpus)
        if gpus:  # what was never in use may be from the beginning of time
            for day, seconds in _by_day(since, until):
                self._add(DayUsage(tenant, day, gpus * seconds))

    def entitled(self, tenant: str, since: float, until: float, gpus: float) -> None:
        """It was entitled to that many GPUs from `since` until `until`."""
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
