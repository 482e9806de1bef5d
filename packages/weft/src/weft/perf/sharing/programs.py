"""Memory and neighbours of programs, as running jobs were seen to have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from weft.core.events.report import Report
from weft.core.knowledge.costs import Attempt
from weft.core.knowledge.programs import program_of
from weft.core.model.job import Job, JobId

MARGIN = 1.1  # of the peak so far: later steps may need more
MARGIN_GB = 0.5  # and what the allocator and the driver take beside it
SETTLED_STEPS = 20  # after these a training has held whatever a step needs
SETTLED_S = 3.0  # since the first step, for jobs of long steps
UNSEEN_S = 30.0  # of running, for jobs whose steps cannot be seen
MOST_PROGRAMS = 2_000  # that are remembered, and pairs of them
RECENT = 0.3  # weight of the last of several measurements
T = TypeVar("T")


@dataclass(slots=True)
class _Running:
    """One job while it runs: the most that it held, since when it steps, whether that settles."""

    peak_gb: float = 0.0
    first_step: float | None = None
    settled: bool = False
    pace: float | None = None
    broken_s: float = 0.0


@dataclass(slots=True)
class LearntPrograms:
    """By program and kind: peaks of memory, which must be alone, and slowdowns beside others.

    A slowdown beside several is the sum of what each adds, so groups inform about pairs, and pairs
    about groups. `promised` is the slowdown allowed for jobs that ask for none.
    """

    promised: float | None = None
    _running: dict[JobId, _Running] = field(default_factory=dict)
    _peaks: dict[str, float] = field(default_factory=dict)
    _alone: dict[str, bool] = field(default_factory=dict)  # whether also once it is known
    _alone_jobs: set[JobId] = field(default_factory=set)
    _faulty: set[JobId] = field(default_factory=set)
    _added: dict[str, float] = field(default_factory=dict)

    # ---- what is known

    def need_gb(self, job: Job, kind: str) -> float | None:
        """What was declared, else the most that the job or its program held, and a margin."""
        if job.gpu_mem_gb is not None:
            return job.gpu_mem_gb
        own, before = self._running.get(job.id), self._peaks.get(_key(job, kind))
        if before is None and (own is None or not own.settled):
            return None
        peak_gb = max(before or 0.0, 0.0 if own is None else own.peak_gb)
        return peak_gb * MARGIN + MARGIN_GB

    def held_gb(self, job: Job) -> float:
        """The most that it was seen to hold."""
        own = self._running.get(job.id)
        return 0.0 if own is None else own.peak_gb

    def must_be_alone(self, job: Job, kind: str) -> bool:
        """It, or a job of its program, ran out beside others.

        Once such a program was seen to settle alone it may share again, unless it ran out although
        it had settled: it is unknown when it will want more.
        """
        if job.gpu_mem_gb is not None or job.id in self._faulty:
            return job.id in self._alone_jobs | self._faulty
        grows = self._alone.get(_key(job, kind))
        return grows is not None and (grows or self.need_gb(job, kind) is None)

    def pace(self, job: Job) -> float | None:
        """What was last measured of it."""
        own = self._running.get(job.id)
        return None if own is None else own.pace

    def broken_s(self, job: Job) -> float:
        """As it was last told."""
        own = self._running.get(job.id)
        return 0.0 if own is None else own.broken_s

    def promise(self, job: Job) -> float | None:
        """What it asked for, else the default promise."""
        return self.promised if job.slowdown is None else job.slowdown

    def slowdown(self, job: Job, kind: str, beside: Sequence[Job]) -> float | None:
        """One and what each neighbour was seen to add."""
        added = [self._added.get(_pair(job, other, kind)) for other in beside]
        known = [part for part in added if part is not None]
        return 1.0 + sum(known) if len(known) == len(added) else None

    # ---- learning

    def observe(self, job: Job, kind: str, report: Report, attempt: Attempt) -> None:
        """Take in the peak of its memory, and whether it is likely to stay that."""
        own = self._running.setdefault(job.id, _Running())
        if report.steps and own.first_step is None:
            own.first_step = attempt.at
        if report.mem_gb is None or report.mem_gb <= 0.0:
            return
        own.peak_gb = max(own.peak_gb, report.mem_gb)
        if own.settled or _is_settled(own, report, attempt):
            self.observe_peak(job, kind, own.peak_gb)

    def observe_peak(self, job: Job, kind: str, peak_gb: float) -> None:
        """The peak of the job and of its program."""
        key, own = _key(job, kind), self._running.setdefault(job.id, _Running())
        own.peak_gb, own.settled = max(own.peak_gb, peak_gb), True
        _keep(self._peaks, key, max(own.peak_gb, self._peaks.get(key, 0.0)))

    def observe_pace(
        self, job: Job, kind: str, pace: float, beside: Sequence[Job], broken_s: float = 0.0
    ) -> None:
        """What each of the neighbours adds is taken to be an equal part."""
        if not beside or not pace > 0.0:
            return
        own = self._running.setdefault(job.id, _Running())
        own.pace, own.broken_s = pace, broken_s
        each = max(1.0 / pace - 1.0, 0.0) / len(beside)
        for other in beside:
            key = _pair(job, other, kind)
            was = self._added.get(key, each)
            _keep(self._added, key, was + RECENT * (each - was))

    def observe_out_of_memory(self, job: Job, kind: str) -> None:
        """What was known about its memory was too little; it starts over, alone."""
        key, own = _key(job, kind), self._running.pop(job.id, None)
        settled = own is not None and own.settled
        self._alone_jobs.add(job.id)
        _keep(self._alone, key, settled or self._alone.get(key, False))
        self._peaks.pop(key, None)

    def observe_fault(self, job: Job) -> None:
        """It is alone from now on."""
        self._running.pop(job.id, None)
        self._faulty.add(job.id)

    def forget(self, job: Job) -> None:
        """The program's part is kept."""
        self._faulty.discard(job.id)
        self._running.pop(job.id, None)
        self._alone_jobs.discard(job.id)

    # ---- keeping

    def save(self) -> Any:
        """All of it."""
        running = {
            job: [own.peak_gb, own.first_step, own.settled, own.pace, own.broken_s]
            for job, own in self._running.items()
        }
        return {
            "running": running,
            "peaks": dict(self._peaks),
            "alone": dict(self._alone),
            "alone_jobs": sorted(self._alone_jobs),
            "faulty": sorted(self._faulty),
            "added": dict(self._added),
        }

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        for job, values in saved["running"].items():
            self._running[JobId(job)] = _Running(*values)
        self._peaks.update(saved["peaks"])
        self._alone.update(saved["alone"])
        self._alone_jobs.update(map(JobId, saved["alone_jobs"]))
        self._faulty.update(map(JobId, saved.get("faulty", ())))
        self._added.update(saved["added"])


def _is_settled(own: _Running, report: Report, attempt: Attempt) -> bool:
    if own.first_step is None:
        return attempt.at - attempt.began >= UNSEEN_S
    return (report.steps or 0.0) >= SETTLED_STEPS or attempt.at - own.first_step >= SETTLED_S


def _key(job: Job, kind: str) -> str:
    return f"{kind} {job.demand.gpus} {program_of(job)}"


def _pair(job: Job, other: Job, kind: str) -> str:
    return f"{_key(job, kind)} | {program_of(other)}"


def _keep(kept: dict[str, T], key: str, value: T) -> None:
    """Remember something as the newest; the oldest is forgotten where there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MOST_PROGRAMS:
        del kept[next(iter(kept))]
