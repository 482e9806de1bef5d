"""Jobs in order of submission, by tenant and by how they ended: pages and counts without a scan."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from weft.core.model import JobId

ALL = "*"  # no tenant and no outcome is called so
ENDED = ("succeeded", "failed", "cancelled")


class JobIndex:
    """Where each job stands in the order of submission, and who else is of its kind."""

    def __init__(self) -> None:
        self.active: dict[JobId, str] = {}  # those that have not ended, with their tenants
        self.active_of: Counter[str] = Counter()
        self._number: dict[JobId, int] = {}
        self._job: dict[int, JobId] = {}
        self._kept: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._next = 0

    def add(self, job: JobId, tenant: str, outcome: str = "") -> None:
        """A job that was handed in after all others."""
        if job in self._number:
            return
        number, self._next = self._next, self._next + 1
        self._number[job], self._job[number] = number, job
        for key in ((ALL, ALL), (tenant, ALL)):
            self._kept[key].append(number)
        self.active[job] = tenant
        self.active_of[tenant] += 1
        if outcome:
            self.end(job, tenant, outcome)

    def end(self, job: JobId, tenant: str, outcome: str) -> None:
        """A job that has ended."""
        self._leave(job, tenant)
        for key in ((ALL, outcome), (tenant, outcome)):
            insort(self._kept[key], self._number[job])

    def remove(self, job: JobId, tenant: str, outcome: str) -> None:
        """A job that is forgotten."""
        number = self._number.pop(job)
        del self._job[number]
        self._leave(job, tenant)
        for word in {ALL, outcome or ALL}:
            for key in ((ALL, word), (tenant, word)):
                numbers = self._kept[key]
                del numbers[bisect_left(numbers, number)]

    def _leave(self, job: JobId, tenant: str) -> None:
        if self.active.pop(job, None) is not None:
            self.active_of[tenant] -= 1

    def after(
        self,
        last: JobId | None,
        *,
        tenant: str = ALL,
        outcome: str = ALL,
        since: float = 0.0,
        when: Callable[[JobId], float] = lambda _: 0.0,
    ) -> Iterator[JobId]:
        """Jobs after `last` in order of submission: of a tenant, and that ended so, or all.

        With `since` and `when` (a job's time of submission) those from then on.
        """
        numbers = self._kept.get((tenant, outcome), [])
        start = 0 if last is None else bisect_right(numbers, self._number[last])
        if since:
            early = bisect_left(numbers, since, key=lambda number: when(self._job[number]))
            start = max(start, early)
        return (self._job[numbers[at]] for at in range(start, len(numbers)))

    def is_after(self, job: JobId, other: JobId) -> bool:
        """Whether `job` was handed in after `other`."""
        return self._number[job] > self._number[other]

    def counts(self, tenant: str = ALL) -> Mapping[str, int]:
        """How many ended in which way."""
        return {word: len(self._kept.get((tenant, word), ())) for word in ENDED}

    def tenants(self) -> dict[str, int]:
        """How many jobs each tenant ever handed in and that are still known."""
        return {one: len(kept) for (one, word), kept in self._kept.items() if one != ALL == word}
