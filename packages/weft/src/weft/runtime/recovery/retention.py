"""Retention of ended jobs, and for how long: so that nothing grows forever.

Ended jobs are forgotten with their output, oldest first, by age; by number and size, those of the
tenant that has most. What tenants used stays, day by day. The log is cut where a base was taken: a
point at which the policy began without memory, so that decisions after it can be made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from heapq import heapify, heappop, heapreplace
from itertools import takewhile
from math import inf

from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId
from weft.frozen import frozen
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver

log = logging.getLogger(__name__)

DAY_S = 86_400.0
PARTS = 8  # bases in the time that the log goes back
LONGEST_S = 7 * DAY_S  # a policy with memory is made to forget it once in so long, for a base
AT_ONCE = 50  # jobs forgotten in one go
READ_AT_ONCE = 5_000


@frozen
class Keep:
    """The time for which ended jobs and events are kept; 0 of anything keeps all of it.

    `days` since a job ended, `jobs` that ended last, `gb` of what they wrote in the state folder,
    `events` of the log.
    """

    days: float = 90.0
    jobs: int = 100_000
    gb: float = 0.0
    events: int = 5_000_000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < inf:
                raise InvalidConfig(f"keep-{name} is {value}", hint="0 or more; 0 keeps everything")


FOR_EVER = Keep(0.0, 0, 0.0, 0)


def choose_jobs(
    oldest: Sequence[tuple[float, JobId, str]],
    now: float,
    keep: Keep,
    *,
    sizes: Mapping[JobId, int],
) -> list[JobId]:
    """Choose which of the `oldest` jobs to forget: by age, number and size.

    Of too many, or too large ones, the first go of the tenant that has most, so that no tenant's
    jobs put out those of others. `sizes` are of all of them, where they matter.
    """
    last = now - keep.days * DAY_S if keep.days else -inf
    old = list(takewhile(lambda row: row[0] < last, oldest))
    chosen, kept = [job for _, job, _ in old], oldest[len(old) :]
    for most, size_of in ((keep.jobs, lambda _: 1), (keep.gb * 1e9, lambda job: sizes.get(job, 0))):
        if most:
            gone = set(_choose_fairly(kept, most, size_of))
            chosen += [job for _, job, _ in kept if job in gone]
            kept = [row for row in kept if row[1] not in gone]
    return chosen


def _choose_fairly(
    oldest: Sequence[tuple[float, JobId, str]], most: float, size_of: Callable[[JobId], float]
) -> Iterator[JobId]:
    """Choose jobs that are too many: always the first of the tenant that has most by then."""
    queues: defaultdict[str, deque[JobId]] = defaultdict(deque)
    held: defaultdict[str, float] = defaultdict(float)
    for _, job, tenant in oldest:
        queues[tenant].append(job)
        held[tenant] += size_of(job)
    total = sum(held.values())
    heap = [(-amount, tenant) for tenant, amount in held.items()]
    heapify(heap)
    while total > most:
        tenant = heap[0][1]
        job = queues[tenant].popleft()
        total -= size_of(job)
        held[tenant] -= size_of(job)
        if queues[tenant]:
            heapreplace(heap, (-held[tenant], tenant))
        else:
            heappop(heap)
        yield job


def choose_base(
    bases: Sequence[tuple[int, float]], last: int, now: float, keep: Keep
) -> int | None:
    """The newest base (of number and time) that is old enough to cut the log at; None: no cut."""
    old = [
        seq
        for seq, at in bases
        if (keep.days and at <= now - keep.days * DAY_S)
        or (keep.events and seq <= last - keep.events)
    ]
    return max(old, default=None)


def is_base_due(
    bases: Sequence[tuple[int, float]], last: int, now: float, keep: Keep, *, memory: bool
) -> bool:
    """True if it is time for another base; one that costs a policy its memory is rarer."""
    seq, at = bases[-1] if bases else (0, -inf)
    if memory and now - at < LONGEST_S:
        return False
    by_time = bool(keep.days) and now - at >= keep.days * DAY_S / PARTS
    by_count = bool(keep.events) and last - seq >= keep.events / PARTS
    return by_time or by_count


class Retention(Repeated):
    """Forgets, a little at a time, beside a driver that goes on."""

    every_s = 600.0
    trouble = "pruning failed; it is tried again later"

    def __init__(self, driver: Driver, keep: Keep) -> None:
        self.keep = keep
        self._driver = driver
        self._sizes: dict[JobId, int] = {}
        self._bases: list[tuple[int, float]] = []
        self._alone = asyncio.Lock()  # one at a time, or what both chose is counted twice

    async def poll(self) -> int:
        return await self.prune()

    async def prune(self) -> int:
        """Forget what is due, and cut the log where it can be; how many jobs were forgotten."""
        async with self._alone:
            return await self._prune()

    async def _prune(self) -> int:
        driver = self._driver
        if self.keep.gb:
            await self._measure()
        forgotten, gone = 0, -1
        while gone and (chosen := await self._choose()):
            gone = sum([await self._forget(some) for some in _in_parts(chosen)])
            forgotten += gone
        if forgotten:
            log.info("jobs=%d forgotten, %d kept", forgotten, len(driver.ledger.jobs))
            driver.saver.save_soon()
        await self._cut_log()
        return forgotten

    async def _choose(self) -> list[JobId]:
        driver, jobs, keep = self._driver, self._driver.ledger.jobs, self.keep
        count = sum(jobs.counts().values()) - len(jobs.leaving)
        if not keep.days and not keep.gb and count <= (keep.jobs or inf):
            return []
        by_age_alone = not keep.gb and count <= (keep.jobs or inf)
        oldest = await asyncio.to_thread(jobs.oldest(READ_AT_ONCE if by_age_alone else None))
        return choose_jobs(oldest, driver.now, self.keep, sizes=self._sizes)

    async def _forget(self, jobs: Sequence[JobId]) -> int:
        driver = self._driver
        gone = driver.ledger.jobs.forget(jobs)
        await asyncio.to_thread(driver.store.ended.remove, gone)
        await driver.engine.forget(gone)
        for job in gone:
            self._sizes.pop(job, None)
        return len(gone)

    async def _cut_log(self) -> None:
        driver, store = self._driver, self._driver.store
        self._bases = await asyncio.to_thread(store.list_bases)
        driver.saver.wants_base = self._wants_base
        if self._wants_base(driver.seq, driver.now):
            await driver.restate_policy()
            await driver.saver.base_written()
            self._bases = await asyncio.to_thread(store.list_bases)
        cut = choose_base(self._bases, driver.seq, driver.now, self.keep)
        if cut is not None:
            await asyncio.to_thread(store.compact, cut)

    def _wants_base(self, seq: int, at: float) -> bool:
        memory = self._driver.scheduler.memory is not None
        return is_base_due(self._bases, seq, at, self.keep, memory=memory)

    async def _measure(self) -> None:
        """Measure what each ended job takes of the disk, once, since it does not change."""
        driver = self._driver
        ended = await asyncio.to_thread(driver.ledger.jobs.oldest(None))
        new = [job for _, job, _ in ended if job not in self._sizes]
        for some in _in_parts(new):
            self._sizes |= await asyncio.to_thread(driver.engine.stored_bytes, some)


def _in_parts(jobs: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
    for start in range(0, len(jobs), AT_ONCE):
        yield jobs[start : start + AT_ONCE]
