"""Jobs on devices by time, and decisions: a fold of the log, for those who look back.

Begun when someone first asks, from the beginning of the log, and kept up from then on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.core.events.event import (
    Awoke,
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    Resized,
    Resumed,
    Saved,
    Slept,
    Started,
    StartFailed,
    Stopped,
    Submitted,
    Suspended,
)
from weft.core.model.job import Allocation, JobId, name_of
from weft.frozen import frozen
from weft.runtime.loop.background import end_task
from weft.runtime.loop.driver import Driver
from weft.service.responses.watch import EndWord

MOST_SPANS = 200_000
MOST_NEWS = 20_000
MOST_DECISIONS = 1_000
CHANGES_SHOWN = 100
Devices = tuple[tuple[str, tuple[int, ...]], ...]


@frozen
class JobLabel:
    """The name of a job, and its owner."""

    name: str
    tenant: str


@dataclass(slots=True)
class Span:
    """An attempt on devices for a while; `end` None: it is there still.

    `how` it ended: finished, preempted, failed, cancelled, suspended or resized. `lost_gpu_s` is
    the work since its last checkpoint, of one that was stopped or failed. `seq` is the last event
    of it.
    """

    job: JobId
    attempt: int
    on: Devices
    share: float
    start: float
    seq: int
    end: float | None = None
    how: EndWord = ""
    lost_gpu_s: float | None = None

    @property
    def gpus(self) -> float:
        """Devices, shares counted as such."""
        return self.share * sum(len(gpus) for _, gpus in self.on)


@frozen
class GpuChange:
    """The change that a decision made to a job: GPUs before and after, and why."""

    job: JobId
    before: float
    after: float
    kept: bool
    why: str


@frozen
class Decision:
    """One decision: what changed, how many jobs got a reason, and which policy decided instead."""

    number: int
    at: float
    moves: tuple[GpuChange, ...]
    more: int
    rejected: int
    reasons: int
    by: str


@dataclass(slots=True)
class Timeline:
    """Spans in order of their start, decisions in order of time."""

    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=MOST_SPANS))
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=MOST_DECISIONS))
    changed: deque[tuple[int, Span]] = field(default_factory=lambda: deque(maxlen=MOST_NEWS))
    names: dict[JobId, JobLabel] = field(default_factory=dict)
    begun: float | None = None
    seq: int = 0
    _wanted: dict[JobId, Allocation] = field(default_factory=dict)
    _open: dict[JobId, Span] = field(default_factory=dict)
    _saved: dict[JobId, float] = field(default_factory=dict)
    _asked: dict[JobId, EndWord] = field(default_factory=dict)  # to leave, and why

    def fold(self, seq: int, at: float, event: Event) -> None:  # noqa: C901, PLR0912 - one case an event
        self.seq = seq
        if self.begun is None:
            self.begun = at
        match event:
            case Submitted(job):
                self.names[job.id] = JobLabel(name_of(job), job.tenant)
            case Decided():
                self._decided(at, event)
            case Started(job_id, attempt) | Awoke(job_id, attempt):
                self._begin(seq, at, job_id, attempt)
            case Resized(job_id, attempt):
                self._end(seq, at, job_id, "resized")
                self._begin(seq, at, job_id, attempt)
            case Saved(job_id):
                self._saved[job_id] = at
            case Stopped(job_id):
                self._end(seq, at, job_id, self._asked.get(job_id, "preempted"))
            case Slept(job_id):
                how = self._asked.get(job_id, "preempted")
                self._end(seq, at, job_id, how, loses=False)
            case Finished(job_id):
                self._end(seq, at, job_id, "finished")
            case Failed(job_id) | StartFailed(job_id):
                self._end(seq, at, job_id, "failed")
            case Cancelled(job_id):
                self._asked[job_id] = "cancelled"
            case Suspended(job_id):
                self._asked[job_id] = "suspended"
            case Resumed(job_id):
                self._asked.pop(job_id, None)
            case _:
                pass  # no job is on other devices after it

    def _decided(self, at: float, event: Decided) -> None:
        moves = []
        for job, to in event.changes.items():
            was = self._wanted.get(job)
            before = 0.0 if was is None else was.counted_gpus
            after = 0.0 if to is None else to.counted_gpus
            kept = was is not None and to is not None and was.stays(to)
            moves.append(GpuChange(job, before, after, kept, event.reasons.get(job, "")))
            if to is None:
                self._wanted.pop(job, None)
                continue
            self._wanted[job] = to
            if kept and job in self._open:
                self._open[job].share = to.sharing.share
        if moves or event.rejected or event.by is not None:
            self.decisions.append(
                Decision(
                    event.number,
                    at,
                    tuple(moves[:CHANGES_SHOWN]),
                    max(len(moves) - CHANGES_SHOWN, 0),
                    len(event.rejected),
                    len(event.reasons),
                    "" if event.by is None else event.by.text,
                )
            )

    def _begin(self, seq: int, at: float, job: JobId, attempt: int) -> None:
        on = self._wanted.get(job)
        if on is None or job in self._open:
            return
        devices = tuple((str(part.node), part.gpus) for part in on.slices)
        span = self._open[job] = Span(job, attempt, devices, on.sharing.share, at, seq)
        self.spans.append(span)
        self.changed.append((seq, span))

    def _end(self, seq: int, at: float, job: JobId, how: EndWord, *, loses: bool = True) -> None:
        span = self._open.pop(job, None)
        if span is None:
            return
        span.end, span.how, span.seq = at, how, seq
        self.changed.append((seq, span))
        if loses and how in ("preempted", "suspended", "failed") and job in self._saved:
            span.lost_gpu_s = span.gpus * max(at - max(self._saved[job], span.start), 0.0)

    def between(self, since: float, until: float, after: int, job: str = "") -> list[Span]:
        """Spans in a window of time, or those of one job; with `after`, what changed since then."""
        return [
            span
            for span in self._after(after)
            if span.start <= until
            and (span.end is None or span.end >= since)
            and span.seq > after
            and job in ("", span.job)
        ]

    def _after(self, after: int) -> Iterable[Span]:
        """Spans that something happened to after an event: the last few, or all to choose from."""
        if not after or not self.changed or self.changed[0][0] > after:
            return self.spans.copy()
        news: dict[int, Span] = {}
        for seq, span in reversed(self.changed.copy()):
            if seq <= after:
                break
            news[id(span)] = span
        return sorted(news.values(), key=lambda span: span.start)


class TimelineReader:
    """Reads the log into a timeline, once someone wants one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.timeline = Timeline()
        self._task: asyncio.Task[None] | None = None

    @property
    def part_read(self) -> float:
        """The part of the log that has been read."""
        return min(self.timeline.seq / max(self._driver.seq, 1), 1.0)

    async def ready(self, within_s: float) -> Timeline:
        """The timeline, read to the end of the log if that does not take too long."""
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        wanted, loop = self._driver.seq, asyncio.get_running_loop()
        end = loop.time() + within_s
        while self.timeline.seq < wanted and loop.time() < end and not self._task.done():
            await asyncio.sleep(0.02)
        return self.timeline

    async def close(self) -> None:
        await end_task(self._task)

    async def _read(self) -> None:
        async for rows in self._driver.subscribe(0):
            for seq, at, event in rows:
                self.timeline.fold(seq, at, event)
            await asyncio.sleep(0.0)


def longest(spans: Iterable[Span], most: int, now: float) -> list[Span]:
    """At most that many, those that can be seen best."""
    some = list(spans)
    if len(some) <= most:
        return some
    kept = sorted(some, key=lambda span: (now if span.end is None else span.end) - span.start)[
        -most:
    ]
    return sorted(kept, key=lambda span: span.start)
