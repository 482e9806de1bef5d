"""Watching the cluster: what changed since the last look, described once for all clients.

Events come as they happen; watching clients get the resulting changes, at most twice a second, and
what jobs report of themselves less often. Nothing is done while no client watches.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Hashable, Iterable, Set
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from weft.app.serve.live import Live
from weft.core.events.event import (
    Decided,
    Event,
    Measured,
    OfJob,
    PolicyChanged,
    Reported,
    Saved,
    Submitted,
)
from weft.core.model.job import JobId, Slice, Stage
from weft.core.state.cells import TableColumns
from weft.frozen import frozen
from weft.runtime.loop.driver import Driver
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.status import JobStatus, status_of
from weft.service.access.redaction import secrets_of
from weft.service.access.tokens import Caller
from weft.service.http.replies import write_json
from weft.service.jobs.arguments import arguments_of
from weft.service.jobs.job_view import JobView, is_idle, node_answers, row_fields, silent_s
from weft.service.responses.answers import NodeAnswer
from weft.service.responses.watch import ClusterPulse, GpusOnNode, WatchedJob

WAITING = ("pending", "preempted", "suspended")
NO_REASON = 0
MOST_REASONS = 50_000


@dataclass(slots=True)
class Reasons:
    """Reasons of waiting jobs by number; jobs that ask for the same share one.

    When it changes, its text is sent again and none of their rows.
    """

    texts: dict[int, str] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _examples: dict[int, JobId] = field(default_factory=dict)
    _last: int = NO_REASON

    def number_of_job(self, driver: Driver, job_view: JobView, status: JobStatus) -> int:
        """The number of a job's reason, with its text as it is now."""
        text, key = _reason(driver, job_view, status)
        return self.number_of_cause(key, text, status.record.job.id) if text else NO_REASON

    def number_of_cause(self, key: Hashable, text: str, job: JobId) -> int:
        """The number of what a reason follows from, which `job` is an example of."""
        number = self._numbers.get(key)
        if number is None:
            self._last += 1
            number = self._numbers[key] = self._last
        self.texts[number] = text
        self._examples[number] = job
        return number

    def update_all(self, driver: Driver, job_view: JobView) -> set[JobId]:
        """Look at every reason again; which jobs have another one now."""
        other = set()
        for number, job in [*self._examples.items()]:
            if (
                job in driver.ledger.jobs.active
                and self.number_of_job(driver, job_view, driver.job(job)) == number
            ):
                continue
            del self._examples[number]  # found again with the next job that has it
            if job in driver.ledger.jobs.active:
                other.add(job)
        return other

    def forget_unused(self, used: Set[int], most: int = MOST_REASONS) -> None:
        """Forget reasons that no job has where there are too many; no number is given again."""
        if len(self._numbers) > most:
            self._numbers = {key: n for key, n in self._numbers.items() if n in used}
            self.texts = {n: self.texts[n] for n in self._numbers.values()}
            self._examples = {n: job for n, job in self._examples.items() if n in used}


def _reason(driver: Driver, job_view: JobView, status: JobStatus) -> tuple[str, Hashable]:
    """A job's reason and what it follows from: jobs with the same have the same text."""
    record = status.record
    text = job_view.reason(status)
    if record.suspended is not None and record.sleeps is None:
        return text, ("suspended", record.suspended)
    if status.state not in WAITING and record.suspended is None:
        own = silent_s(record, driver.now, driver.engine.speed) or is_idle(driver, record)
        running = status.state == "running" and own
        return text, ("running", record.job.id) if running else (record.reason, record.said)
    if record.sleeps is not None:
        return text, ("asleep", record.job.id)
    if record.failures or record.job.conditional:
        return text, ("job", record.job.id)
    return text, (record.said, record.job.demand, record.job.tenant, record.blocker)


def row_of(driver: Driver, status: JobStatus, why: int) -> WatchedJob:
    """One job in short."""
    record, job, on = status.record, status.record.job, status.record.allocation
    return WatchedJob(
        **row_fields(driver, status),
        why=why,
        pace=record.report.pace if status.state == "running" else None,
        share=job.demand.share if on is None else on.sharing.share,
        on=[GpusOnNode(node=part.node, gpus=list(part.gpus)) for part in _slices(driver, record)],
        suspended=record.suspended is not None,
        arguments=arguments_of(job.launch, secrets_of(job)),
    )


def _slices(driver: Driver, record: JobRecord) -> tuple[Slice, ...]:
    """Return the slices that a job is promised, or has not left yet after a stop."""
    on = record.allocation
    if on is None and record.running is not None:
        on = driver.scheduler.state.releasing.find(record.job.id, record.running)
    return () if on is None else on.slices


SOON_S = 0.5  # between messages, while something happens
LATER_S = 4.0  # between looks at reports, reasons and machines
REMEMBERED = 1_000  # messages that a returning client gets
ENDED_SHOWN = 300  # of the jobs submitted last, those that have ended
PART = 1_000  # rows of a snapshot's messages: a client sees the first while the others come
AT_ONCE_S = 0.01  # rows are described before others are let in, for as long as that took
SNAPSHOTS = 4  # written at a time: a crowd that comes at once does not keep a submit waiting
ROWS_KEPT = 20_000


@frozen
class DescribedJob:
    """A job as it was described last: whose it is, the number of its reason, and the text."""

    tenant: str
    why: int
    text: bytes


@frozen
class Delta:
    """Differences from the poll before: jobs by id, machines by name, reasons by number."""

    number: int
    jobs: frozenset[JobId]
    nodes: frozenset[str]
    reasons: frozenset[int]


@dataclass(slots=True)
class Noted:
    """Names in events since the last poll; `reports` can wait."""

    jobs: set[JobId] = field(default_factory=set)
    reports: set[JobId] = field(default_factory=set)
    policy: bool = False

    def note(self, event: Event) -> None:
        if isinstance(event, Reported | Measured | Saved):
            self.reports.add(event.job)
        elif isinstance(event, Submitted):
            self.jobs.add(event.job.id)
        elif isinstance(event, OfJob):
            self.jobs.add(event.job)
        elif isinstance(event, Decided):
            self.jobs.update(event.changes, event.rejected, event.reasons)
        elif isinstance(event, PolicyChanged):
            self.policy = True


class LiveUpdates:
    """Looks at a live scheduler for all clients that watch it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._boot = secrets.token_hex(4)  # numbers of another process mean nothing here
        self._noted, self._reasons = Noted(), Reasons()
        self._looks: deque[Delta] = deque(maxlen=REMEMBERED)
        self._number = 0
        self._news = asyncio.Event()
        self._rows: dict[JobId, DescribedJob] = {}
        self._nodes: dict[str, NodeAnswer] = {}
        self._written: dict[tuple[int, str], bytes] = {}
        self._trouble = ""
        self._watchers = 0
        self._describing, self._writing = asyncio.Lock(), asyncio.Semaphore(SNAPSHOTS)
        self._tasks: list[asyncio.Task[None]] = []

    async def follow(self, who: Caller, last: str = "") -> AsyncGenerator[bytes, None]:
        """Messages as a browser reads them, all there is first; after `last`, what it missed."""
        await self._join()
        try:
            number = self._number
            missed = self._missed(last)
            if missed is None:
                async for part in self._snapshot(who, number):
                    yield part
            elif missed:
                yield self._message("update", who, missed)
            while True:
                news = self._news
                if number == self._number:
                    await news.wait()
                    continue
                number, looks = self._number, self._since(number)
                yield self._message("update", who, looks)
        finally:
            await self._leave()

    # ---- looking

    async def _join(self) -> None:
        self._watchers += 1
        if self._watchers == 1:
            self._looks.clear()
            self._number += 1  # changes until now were not noted
            self._noted, self._reasons, self._rows, self._nodes = Noted(), Reasons(), {}, {}
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._run())]

    async def _leave(self) -> None:
        self._watchers -= 1
        if not self._watchers:
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        driver = self._live.driver
        async for rows in driver.subscribe(driver.seq):
            for _, _, event in rows:
                self._noted.note(event)

    async def _run(self) -> None:
        later = time.monotonic() + LATER_S
        while True:
            await asyncio.sleep(SOON_S)
            now = time.monotonic()
            if now >= later:
                later = now + LATER_S
                await self._poll(wholly=True)
            elif self._noted.jobs or self._noted.policy:
                await self._poll(wholly=False)

    async def _poll(self, *, wholly: bool) -> None:
        noted, self._noted = self._noted, Noted()
        driver = self._live.driver
        before = dict(self._reasons.texts)
        jobs, nodes = noted.jobs, frozenset[str]()
        if wholly:
            job_view = JobView(driver)
            jobs = jobs | noted.reports | self._reasons.update_all(driver, job_view)
            nodes = self._renew_nodes()
            self._tidy()
        else:
            self._noted.reports = noted.reports
        known, state = driver.ledger.jobs, driver.scheduler.state
        records = (known.get(job) for job in jobs)
        await self._describe(status_of(record, state) for record in records if record is not None)
        texts = self._reasons.texts
        reasons = frozenset(number for number, text in texts.items() if before.get(number) != text)
        trouble, self._trouble = self._trouble, driver.trouble
        if not (jobs or nodes or reasons or noted.policy or trouble != self._trouble):
            return
        self._number += 1
        self._written.clear()
        self._looks.append(Delta(self._number, frozenset(jobs), nodes, reasons))
        self._tell()

    def _tidy(self) -> None:
        """Let go of rows of jobs that have ended long ago, and of reasons that no row names."""
        active = self._live.driver.ledger.jobs.active
        if len(self._rows) > len(active) + ROWS_KEPT:
            self._rows = {job: row for job, row in self._rows.items() if job in active}
        self._reasons.forget_unused({row.why for row in self._rows.values()})

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _describe(self, statuses: Iterable[JobStatus]) -> None:
        """Rows of jobs as they are now, with time for others in between."""
        driver = self._live.driver
        job_view, began = JobView(driver), time.perf_counter()
        fresh_until = began + SOON_S  # a view counts all that hold GPUs: not one for each few rows
        for status in statuses:
            why = self._reasons.number_of_job(driver, job_view, status)
            row = row_of(driver, status, why)
            self._rows[status.record.job.id] = DescribedJob(row.tenant, why, write_json(row))
            if (took_s := time.perf_counter() - began) > AT_ONCE_S:
                await asyncio.sleep(took_s)
                began = time.perf_counter()
                if began > fresh_until:
                    job_view, fresh_until = JobView(driver), began + SOON_S

    def _renew_nodes(self) -> frozenset[str]:
        nodes = {node.id: node for node in node_answers(self._live)}
        changed = {name for name, node in nodes.items() if self._nodes.get(name) != node}
        self._nodes = nodes
        return frozenset(changed)

    # ---- telling

    def _missed(self, last: str) -> list[Delta] | None:
        """Changes missed by a client that has everything up to `last`.

        None if they are not known.
        """
        boot, _, number = last.partition("-")
        if boot != self._boot or not number.isdecimal() or not self._looks:
            return None
        seen = int(number)
        if not self._looks[0].number - 1 <= seen <= self._number:
            return None
        return self._since(seen)

    def _since(self, number: int) -> list[Delta]:
        looks = []
        for look in reversed(self._looks):
            if look.number <= number:
                break
            looks.append(look)
        return looks

    async def _snapshot(self, who: Caller, number: int) -> AsyncGenerator[bytes, None]:
        """Everything in parts: machines and jobs on them first, the others as updates.

        Only the last says that all up to `number` is sent: a client that loses the connection
        before gets everything again.
        """
        jobs = self._live.driver.ledger.jobs
        if not self._nodes:
            self._renew_nodes()
        nodes: Iterable[NodeAnswer] = self._nodes.values()
        first = self._placed()
        left = chain(first, (job for job in [*jobs.active] if job not in first))
        some, kind = [*islice(left, max(PART, len(first)))], "snapshot"
        while following := [*islice(left, PART)]:
            async with self._writing:
                await self._describe_missing(some)
                began = time.perf_counter()
                part = self._text(kind, who, some, nodes, frozenset(), None)
                took_s = time.perf_counter() - began
                await asyncio.sleep(0.0)
            yield part
            await asyncio.sleep(took_s)  # others are let in; a client that left is noticed
            some, kind, nodes = following, "update", ()
        await self._describe_missing(some)
        shown = [*await self._describe_ended(), *some]
        yield self._text(kind, who, shown, nodes, frozenset(), number)

    def _placed(self) -> dict[JobId, None]:
        """Active jobs that have devices, in order of submission; costs as much as they are."""
        driver = self._live.driver
        jobs, table = driver.ledger.jobs, driver.scheduler.state.table
        rows = np.flatnonzero(table.column(TableColumns.STAGE) != Stage.PENDING).tolist()
        active = (job for row in rows if (job := table.jobs[row].id) in jobs.active)
        return {job: None for job in active if jobs.live[job].allocation is not None}

    async def _describe_missing(self, jobs: Iterable[JobId]) -> None:
        """Rows of active jobs that have none yet."""
        driver, rows = self._live.driver, self._rows
        known, state = driver.ledger.jobs.live, driver.scheduler.state
        async with self._describing:  # clients that come at the same time find them described
            missing = [job for job in jobs if job not in rows and job in known]
            await self._describe(status_of(known[job], state) for job in missing if job in known)

    async def _describe_ended(self) -> list[JobId]:
        """The last jobs that have ended, with a row each."""
        driver = self._live.driver
        jobs = driver.ledger.jobs
        page = jobs.page_reader(ENDED_SHOWN, after=max(jobs.following - ENDED_SHOWN, 0) - 1)
        latest = [record for record in await asyncio.to_thread(page) if record.outcome]
        async with self._describing:
            missing = [record for record in latest if record.job.id not in self._rows]
            await self._describe(status_of(record, driver.scheduler.state) for record in missing)
        return [record.job.id for record in latest]

    def _message(self, kind: str, who: Caller, looks: list[Delta]) -> bytes:
        if len(looks) != 1:
            return self._write(kind, who, looks)
        key = (looks[0].number, "" if who.everywhere else f"={who.tenant}")
        if key not in self._written:
            self._written[key] = self._write(kind, who, looks)
        return self._written[key]

    def _write(self, kind: str, who: Caller, looks: list[Delta]) -> bytes:
        jobs = frozenset[JobId]().union(*(look.jobs for look in looks))
        names = frozenset[str]().union(*(look.nodes for look in looks))
        numbers = frozenset[int]().union(*(look.reasons for look in looks))
        nodes = [self._nodes[name] for name in names if name in self._nodes]
        return self._text(kind, who, sorted(jobs), nodes, numbers, self._number)

    def _text(
        self,
        kind: str,
        who: Caller,
        jobs: Iterable[JobId],
        nodes: Iterable[NodeAnswer],
        reasons: frozenset[int],
        number: int | None,
    ) -> bytes:
        """One message, after which everything up to `number` is sent. Rows were written before.

        A user gets only reasons of their own jobs: a reason may quote what another's job printed.
        """
        rows = [self._rows[job] for job in jobs if job in self._rows]
        if not who.everywhere:
            rows = [row for row in rows if row.tenant == who.tenant]
            if reasons:
                reasons &= {row.why for row in self._rows.values() if row.tenant == who.tenant}
        numbers = sorted(reasons | {row.why for row in rows if row.why})
        texts = self._reasons.texts
        body = b'{"cluster":%b,"nodes":%b,"reasons":%b,"jobs":[%b]}' % (
            write_json(self._pulse()),
            write_json([*nodes]),
            write_json({number: texts[number] for number in numbers if number in texts}),
            b",".join(row.text for row in rows),
        )
        head = f"event: {kind}\ndata: ".encode()
        if number is not None:
            head = f"id: {self._boot}-{number}\n".encode() + head
        return head + body + b"\n\n"

    def _pulse(self) -> ClusterPulse:
        driver = self._live.driver
        state = driver.scheduler.state
        rows = np.flatnonzero(state.table.column(TableColumns.HELD)).tolist()
        placed = (state.table.allocations[row] for row in rows)
        held = sum(on.counted_gpus for on in placed if on is not None)
        return ClusterPulse(
            now=driver.now,
            speed=driver.engine.speed,
            policy=self._live.policy.text,
            engine=self._live.engine.text,
            trouble=driver.trouble,
            gpus=state.cluster.gpus,
            held=held,
            decisions=state.decisions,
            seq=driver.seq,
        )
