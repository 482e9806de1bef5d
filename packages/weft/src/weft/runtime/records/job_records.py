"""Records of jobs: those that have not left in memory, all others in the store's table.

What has ended never changes, so a service holds as many records as it has jobs to look after, and
a few that left lately; pages, counts and single records of the past cost the same however long it
is.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from weft.core.asleep.sleeping import Sleeping
from weft.core.codec.plain_values import decode, encode
from weft.core.errors import WeftError
from weft.core.events.report import NO_REPORT, Report
from weft.core.model.job import Allocation, Job, JobId, LinearQuantity, Tier, name_of
from weft.core.plan.reasons import Blocker
from weft.core.state.ended_jobs import EndedFilter, EndedInMemory, EndedJob, EndedJobs
from weft.frozen import frozen
from weft.runtime.records.metrics import NO_METRICS, JobMetrics
from weft.runtime.records.spending import NO_SPENDING, Spending

ALL = "*"  # no tenant and no outcome is called so
ENDED = ("succeeded", "failed", "cancelled")
NOTHING = LinearQuantity()
LASTED_S = 60.0  # a job that ends its own agents would have done so by then
READ_AT_ONCE = 1_000
KEPT = 2_000  # records of the table that are not read again at once


@frozen
class JobRecord:
    """One job's history so far.

    `outcome` is empty while the job is active, then succeeded, failed or cancelled. `reason`
    is why its last attempt failed or why it was rejected; `said` is why it waits, if the last
    decision had a word on that, and `blocker` the same in a word.
    `attempt` counts promises of devices, `starts` those that came to run, `failures` those that
    died of the job's own doing since it last wrote a further checkpoint, `agents_lost` those whose
    agent died since then or since one lived for a minute, `alike` how it failed and how many times
    so in a row, each within ten minutes of its start. `report` is the last
    one of the running attempt, `saved` the step of the last checkpoint. `heard` is when it last
    reported in this attempt, and how long after the word before. `gpu_s` reads as `gpu_s.at(now)`.
    `number` is its place in the order of submission; `missed` says that its deadline came before
    its end. `resizes` counts changes of devices that it made as it trained, `epoch` those asked of
    this attempt; `leaves` is what it holds beside its allocation until the last one is made.
    `suspended` is who suspended it, None while it is not. `first_priority` is the priority and tier
    it was submitted with, None while it still has those. `sleeps` is its attempt that sleeps, or is
    about to. `metrics` are what its program measured of itself. `spending` is where its GPU time
    went.
    """

    job: Job
    submitted: float
    outcome: str = ""
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    attempt: int = 0
    starts: int = 0
    failures: int = 0
    running: int | None = None
    allocation: Allocation | None = None
    gpu_s: LinearQuantity = NOTHING
    report: Report = NO_REPORT
    saved: int | None = None
    heard: tuple[float, float] | None = None
    notices: tuple[tuple[float, str, str], ...] = ()
    said: str = ""
    blocker: Blocker = Blocker.SAID
    number: int = 0
    agents_lost: int = 0
    missed: bool = False
    resizes: int = 0
    epoch: int = 0
    leaves: Allocation | None = None
    suspended: str | None = None
    first_priority: tuple[float, Tier] | None = None
    sleeps: Sleeping | None = None
    alike: tuple[str, int] = ("", 0)
    metrics: JobMetrics = NO_METRICS
    spending: Spending = NO_SPENDING

    @property
    def handed_in(self) -> Job:
        """The job as it was submitted, whatever was changed since."""
        if self.first_priority is None:
            return self.job
        priority, tier = self.first_priority
        return replace(self.job, priority=priority, tier=tier)

    @property
    def gave_way(self) -> bool:
        """True if it waits since it was stopped for others: that stays true while it does."""
        return self.blocker is Blocker.GAVE_WAY and self.allocation is None

    @property
    def restarts(self) -> int:
        return max(self.starts - 1, 0)

    @property
    def speed(self) -> float | None:
        """Samples per second."""
        step, batch = self.report.step_s, self.report.batch
        return batch / step if step and batch else self.report.updates_per_s

    @property
    def goodput(self) -> float | None:
        """Useful samples per second: steps worth of the initial batch."""
        step, gain = self.report.step_s, self.report.gain
        if step and gain and self.job.batch:
            return gain * self.job.batch.init / step
        return self.report.goodput or self.speed

    def ran_long(self, at: float, attempt: int) -> bool:
        """True if the running attempt has kept its agent for a good while."""
        return self.running == attempt and at - self.gpu_s.since >= LASTED_S


class JobRecords(Mapping[JobId, JobRecord]):
    """Every job that is known, by id, in order of submission.

    `live` are those in memory: active ones, with their tenants in `active`; ended ones that may
    still leave their devices, in `leaving`; and those in `done`, which the store is to take.
    `touched` are the active ones that ran or are suspended. `changed` is called with each record
    that takes the place of another, and the other.
    """

    def __init__(
        self, records: Iterable[JobRecord] = (), ended: EndedJobs | None = None, following: int = 0
    ) -> None:
        self.live: dict[JobId, JobRecord] = {}
        self.active: dict[JobId, str] = {}
        self.active_of: Counter[str] = Counter()
        self.touched: dict[JobId, None] = {}
        self.leaving: dict[JobId, None] = {}
        self.done: dict[JobId, None] = {}
        self.ended: EndedJobs = EndedInMemory() if ended is None else ended
        self._counts: Counter[tuple[str, str]] = Counter()
        self.following = following  # the number of the next job
        self.changed: Callable[[JobRecord | None, JobRecord], None] = lambda *_: None
        for record in _numbered([*records]):
            self._take(record)
            self.following = max(self.following, record.number + 1)

    def count_ended(self) -> None:
        """Count the rows of the store, once it has what it should have."""
        self._counts.update(self.ended.counts())

    # ---- as a mapping

    def __getitem__(self, job: JobId) -> JobRecord:
        record = self.live.get(job)
        if record is not None:
            return record
        row = self.ended.get(job)
        if row is None:
            raise KeyError(job)
        return record_of(row)

    def __contains__(self, job: object) -> bool:
        return job in self.live or self.ended.get(JobId(str(job))) is not None

    def __len__(self) -> int:
        return len(self.active) + self._counts.total()

    def __iter__(self) -> Iterator[JobId]:
        last = -1
        while records := self.page_reader(READ_AT_ONCE, after=last)():
            yield from (record.job.id for record in records)
            last = records[-1].number

    # ---- pages and counts

    def page_reader(
        self,
        limit: int,
        *,
        after: int = -1,
        tenant: str = ALL,
        outcome: str = ALL,
        app: str | None = None,
        since: float = 0.0,
    ) -> Callable[[], list[JobRecord]]:
        """A function that reads a page, in order of submission: to be called in any thread.

        Jobs after a number, of a tenant or an app, that ended so, submitted at `since` or later.
        """
        records = (
            record
            for record in self.live.values()
            if record.number > after
            and record.submitted >= since
            and tenant in (ALL, record.job.tenant)
            and outcome in (ALL, record.outcome)
            and app in (None, record.job.app)
        )
        live = [*islice(records, limit)]
        whose, how = (None if word == ALL else word for word in (tenant, outcome))

        def read() -> list[JobRecord]:
            first = after if not since else self._before(since, after)
            rows = self.ended.page(first, limit, EndedFilter(whose, how, app))
            both: dict[int, JobRecord | EndedJob] = {
                ended_job.number: ended_job for ended_job in rows
            }
            both |= {record.number: record for record in live}  # it may be written at this moment
            chosen = [both[number] for number in sorted(both)[:limit]]
            return [record_of(job) if isinstance(job, EndedJob) else job for job in chosen]

        return read

    def ended_since(self, at: float, outcome: str, limit: int) -> Callable[[], list[JobRecord]]:
        """A function that reads which jobs ended so at `at` or later: the last ones, in order."""
        live = (self.live[job] for job in [*self.leaving, *self.done])
        late = [job for job in live if job.outcome == outcome and (job.ended or 0.0) >= at]

        def read() -> list[JobRecord]:
            rows = self.ended.ended_since(at, outcome, limit)
            records = {row.job: record_of(row) for row in rows}
            records |= {record.job.id: record for record in late}
            return sorted(records.values(), key=lambda record: record.ended or 0.0)[-limit:]

        return read

    def counts(self, tenant: str = ALL) -> Mapping[str, int]:
        """The number of jobs that ended in each way."""
        return {
            word: sum(
                n
                for (owner, how), n in self._counts.items()
                if how == word and tenant in (ALL, owner)
            )
            for word in ENDED
        }

    def tenants(self) -> dict[str, int]:
        """The number of jobs of each tenant that are still known."""
        known: Counter[str] = Counter(self.active_of)
        for (tenant, _), count in self._counts.items():
            known[tenant] += count
        return dict(known)

    def oldest(self, limit: int | None) -> Callable[[], list[tuple[float, JobId, str]]]:
        """A function that reads end, id and tenant of jobs that have left: the first ones."""
        live = [(self.live[job].ended or 0.0, job, self.live[job].job.tenant) for job in self.done]
        return lambda: sorted({*live, *self.ended.oldest(limit)})[:limit]

    def latest(self, limit: int) -> list[JobId]:
        """Some of the last that were submitted."""
        return [*islice(reversed(self.live), limit), *self.ended.latest(limit)][:limit]

    # ---- changes

    def add(self, job: Job, at: float) -> None:
        """A job that was submitted after all others."""
        self._take(record := JobRecord(job, at, number=self.following))
        self.changed(None, record)
        self.following += 1

    def changeable(self, job: JobId) -> JobRecord | None:
        """The record of a job that may still change; None once the store may have taken it."""
        return None if job in self.done else self.live.get(job)

    def set(self, job: JobId, /, **changes: Any) -> None:
        """Change fields of the record of a job that is in memory."""
        was = self.live[job]
        self.live[job] = record = replace(was, **changes)
        self._note_touched(record)
        self.changed(was, record)

    def end(self, job: JobId) -> None:
        """A job has ended, as its record says; it may still be leaving its devices."""
        record = self.live[job]
        if self.active.pop(job, None) is not None:
            self.active_of[record.job.tenant] -= 1
            self.touched.pop(job, None)
        self._counts[record.job.tenant, record.outcome] += 1
        self.leaving[job] = None

    def release_to_store(self, job: JobId) -> None:
        """A job that has ended holds nothing any more: the store may take it."""
        del self.leaving[job]
        self.done[job] = None

    def drop_stored(self, rows: Iterable[EndedJob]) -> list[JobId]:
        """The store has these: let go of them; which were forgotten meanwhile."""
        forgotten = []
        for ended_job in rows:
            if ended_job.job in self.done:
                del self.done[ended_job.job], self.live[ended_job.job]
            else:
                forgotten.append(ended_job.job)
        return forgotten

    def forget(self, jobs: Collection[JobId]) -> list[JobId]:
        """Drop those that have ended and left; which they were."""
        gone = []
        for job in jobs:
            record = self.live.get(job)
            row = (
                self.ended.get(job)
                if record is None
                else None
                if job not in self.done
                else row_of(record)
            )
            if row is None:
                continue
            self._counts[row.tenant, row.outcome] -= 1
            self.done.pop(job, None)
            self.live.pop(job, None)
            gone.append(job)
        return gone

    def _take(self, record: JobRecord) -> None:
        self.live[record.job.id] = record
        self.active[record.job.id] = record.job.tenant
        self.active_of[record.job.tenant] += 1
        self._note_touched(record)
        if record.outcome:
            self.end(record.job.id)

    def _note_touched(self, record: JobRecord) -> None:
        if not (record.starts or record.suspended is not None):
            self.touched.pop(record.job.id, None)
        elif record.job.id in self.active:
            self.touched[record.job.id] = None

    def _before(self, since: float, last: int) -> int:
        first = self.ended.first_since(since)
        return self.following if first is None else max(first - 1, last)


def row_of(record: JobRecord) -> EndedJob:
    """A record as the store keeps it."""
    job = record.job
    data = json.dumps(encode(record), separators=(",", ":")).encode()
    return EndedJob(
        record.number,
        job.id,
        job.tenant,
        job.user,
        name_of(job),
        job.app,
        record.outcome,
        record.submitted,
        record.ended or 0.0,
        data,
    )


def record_of(row: EndedJob) -> JobRecord:
    """The record that was kept."""
    return _read(row.data)


@lru_cache(maxsize=KEPT)
def _read(data: bytes) -> JobRecord:
    record: JobRecord = decode(JobRecord, json.loads(data))
    return record


def _numbered(records: list[JobRecord]) -> list[JobRecord]:
    """In order of submission; numbered again if they come from a file that had no numbers."""
    numbers = [record.number for record in records]
    if all(number < other for number, other in pairwise(numbers)):
        return records
    if len(set(numbers)) == len(numbers):
        return sorted(records, key=lambda record: record.number)
    return [replace(record, number=number) for number, record in enumerate(records)]


log = logging.getLogger(__name__)

AT_ONCE = 100
PAUSE_S = 0.05


class Archive:
    """Hands records to the store whenever that many jobs have left."""

    def __init__(self, ended: EndedJobs) -> None:
        self._ended = ended
        self._task: asyncio.Task[None] | None = None

    def start_if_due(self, jobs: JobRecords, broken: Callable[[asyncio.Task[None]], None]) -> None:
        """Between two turns: begin if there is enough to do."""
        if len(jobs.done) >= AT_ONCE and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._put(jobs))
            self._task.add_done_callback(broken)

    async def finish(self) -> None:
        """Wait for what is being written."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _put(self, jobs: JobRecords) -> None:
        while len(jobs.done) >= AT_ONCE:
            records = [jobs.live[job] for job in islice(jobs.done, AT_ONCE)]
            try:
                rows = await asyncio.to_thread(self._write, records)
                forgotten = jobs.drop_stored(rows)
                if forgotten:
                    await asyncio.to_thread(self._ended.remove, forgotten)
            except WeftError as error:
                log.warning("ended jobs stay in memory for now: %s", error.what)
                return
            await asyncio.sleep(PAUSE_S)

    def _write(self, records: Sequence[JobRecord]) -> list[EndedJob]:
        rows = [row_of(record) for record in records]
        self._ended.put(rows)
        return rows
