"""Memory and neighbours of programs, as running jobs were seen to have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.learning import Remembering
from weft.core.knowledge.programs import can_wait, program_of
from weft.core.model.job import Job, JobId

MARGIN = 1.1  # of the peak so far: later steps may need more
MARGIN_GB = 0.5  # and what the allocator and the driver take beside it
SETTLED_STEPS = 20  # after these a training has held whatever a step needs
SETTLED_S = 3.0  # since the first step, for jobs of long steps
UNSEEN_S = 30.0  # of running, for jobs whose steps cannot be seen
MOST_PROGRAMS = 2_000  # that are remembered, and pairs of them
SMALL_PART = 1 / 8  # of a device's memory: what holds less can be frozen where it is
RECENT = 0.3  # weight of the last of several measurements
T = TypeVar("T")


@dataclass(slots=True)
class RunningProgram:
    """One job while it runs: the most that it held, since when it steps, whether that settles."""

    peak_gb: float = 0.0
    first_step: float | None = None
    settled: bool = False
    pace: float | None = None
    broken_s: float = 0.0
    usual_gb: float | None = None


@dataclass(slots=True)
class ProgramsSeen:
    """Observations of running jobs, of programs by kind, and of pairs of programs.

    `alone` are programs that ran out of memory beside others, and whether also once theirs was
    known; `alone_jobs` the jobs, `faulty` those that a fault of a GPU ended beside others. `usual`
    is the least memory that a program was seen to hold while it trained; `faults` are programs
    that may have caused a fault of a GPU.
    """

    running: dict[JobId, RunningProgram] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    alone: dict[str, bool] = field(default_factory=dict)
    alone_jobs: set[JobId] = field(default_factory=set)
    faulty: set[JobId] = field(default_factory=set)
    added: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    faults: dict[str, bool] = field(default_factory=dict)


class LearntPrograms(Remembering[ProgramsSeen]):
    """By program and kind: peaks of memory, which must be alone, and slowdowns beside others.

    A slowdown beside several is the sum of what each adds, so groups inform about pairs, and pairs
    about groups. `promised` is the slowdown allowed for jobs that ask for none; `waits` says that
    allocations of memory wait here.
    """

    def __init__(self, promised: float | None = None, *, waits: bool = False) -> None:
        super().__init__(ProgramsSeen())
        self.promised, self._waits = promised, waits

    # ---- what is known

    def need_gb(self, job: Job, kind: str) -> float | None:
        """Return the declared memory, else the most that the job or its program held, with room."""
        if job.gpu_mem_gb is not None:
            return job.gpu_mem_gb
        own, before = self.memory.running.get(job.id), self.memory.peaks.get(_key(job, kind))
        if before is None and (own is None or not own.settled):
            return None
        peak_gb = max(before or 0.0, 0.0 if own is None else own.peak_gb)
        return peak_gb * MARGIN + MARGIN_GB

    def waits(self, job: Job) -> bool:
        """As the engine does, for jobs without a container that declared no limit."""
        return self._waits and can_wait(job)

    def usual_gb(self, job: Job, kind: str) -> float | None:
        """Return the least that it held itself, else the least that others of its program held."""
        own = self.memory.running.get(job.id)
        usual_gb = None if own is None else own.usual_gb
        usual_gb = self.memory.usual.get(_key(job, kind)) if usual_gb is None else usual_gb
        return None if usual_gb is None else usual_gb * MARGIN + MARGIN_GB

    def held_gb(self, job: Job) -> float:
        own = self.memory.running.get(job.id)
        return 0.0 if own is None else own.peak_gb

    def must_be_alone(self, job: Job, kind: str) -> bool:
        """It, or a job of its program, ran out beside others.

        Once such a program was seen to settle alone it may share again, unless it ran out although
        it had settled: it is unknown when it will want more.
        """
        if job.gpu_mem_gb is not None or job.id in self.memory.faulty:
            return job.id in self.memory.alone_jobs | self.memory.faulty
        grows = self.memory.alone.get(_key(job, kind))
        return grows is not None and (grows or self.need_gb(job, kind) is None)

    def why_apart(self, job: Job, kind: str, device_gb: float) -> str:
        """Return why: its faults would end others, or it may have to be suspended.

        A client of MPS cannot be. One that holds little can be frozen, and keeps its memory.
        """
        if program_of(job) in self.memory.faults:
            return "its program may have caused a fault of a GPU, which ends all clients"
        if _key(job, kind) in self.memory.alone:
            return "its program ran out of GPU memory beside others"
        need_gb = self.need_gb(job, kind)
        if need_gb is None:
            return "the need of its program is unknown, so it may have to be suspended"
        if need_gb <= SMALL_PART * device_gb:
            return ""
        return f"it needs {need_gb:.3g} GB and may have to be suspended, which no client can be"

    def pace(self, job: Job) -> float | None:
        own = self.memory.running.get(job.id)
        return None if own is None else own.pace

    def broken_s(self, job: Job) -> float:
        """Return for how many seconds the promise was broken, as last reported."""
        own = self.memory.running.get(job.id)
        return 0.0 if own is None else own.broken_s

    def promise(self, job: Job) -> float | None:
        """Return the slowdown it asked for, else the default promise."""
        return self.promised if job.slowdown is None else job.slowdown

    def slowdown(self, job: Job, kind: str, beside: Sequence[Job]) -> float | None:
        """Return the slowdown: 1 and what each neighbour was seen to add."""
        added = [self.memory.added.get(_pair(job, other, kind)) for other in beside]
        known = [part for part in added if part is not None]
        return 1.0 + sum(known) if len(known) == len(added) else None

    # ---- learning

    def observe(self, job: Job, kind: str, report: Report, attempt: AttemptSource) -> None:
        """Take in the peak of its memory, and whether it is likely to stay that."""
        own = self.memory.running.setdefault(job.id, RunningProgram())
        if report.steps and own.first_step is None:
            own.first_step = attempt.at
        if report.steps and report.held_gb:
            own.usual_gb = min(own.usual_gb or report.held_gb, report.held_gb)
            _keep(self.memory.usual, _key(job, kind), own.usual_gb)
        if report.mem_gb is None or report.mem_gb <= 0.0:
            return
        own.peak_gb = max(own.peak_gb, report.mem_gb)
        if own.settled or _is_settled(own, report, attempt):
            self.observe_peak(job, kind, own.peak_gb)

    def observe_peak(self, job: Job, kind: str, peak_gb: float) -> None:
        key, own = _key(job, kind), self.memory.running.setdefault(job.id, RunningProgram())
        own.peak_gb, own.settled = max(own.peak_gb, peak_gb), True
        _keep(self.memory.peaks, key, max(own.peak_gb, self.memory.peaks.get(key, 0.0)))

    def observe_pace(
        self, job: Job, kind: str, pace: float, beside: Sequence[Job], broken_s: float = 0.0
    ) -> None:
        """Divide the measured slowdown equally among the neighbours."""
        if not beside or not pace > 0.0:
            return
        own = self.memory.running.setdefault(job.id, RunningProgram())
        own.pace, own.broken_s = pace, broken_s
        each = max(1.0 / pace - 1.0, 0.0) / len(beside)
        for other in beside:
            key = _pair(job, other, kind)
            was = self.memory.added.get(key, each)
            _keep(self.memory.added, key, was + RECENT * (each - was))

    def observe_out_of_memory(self, job: Job, kind: str) -> None:
        """Forget the program's memory estimate, so that its next run gets a GPU alone."""
        key, own = _key(job, kind), self.memory.running.pop(job.id, None)
        settled = own is not None and own.settled
        self.memory.alone_jobs.add(job.id)
        _keep(self.memory.alone, key, settled or self.memory.alone.get(key, False))
        self.memory.peaks.pop(key, None)

    def observe_fault(self, job: Job, *, beside: bool) -> None:
        """Remember the program, and keep a job that ended beside others alone from now on."""
        _keep(self.memory.faults, program_of(job), True)
        self.memory.running.pop(job.id, None)
        if beside:
            self.memory.faulty.add(job.id)

    def forget(self, job: Job) -> None:
        self.memory.faulty.discard(job.id)
        self.memory.running.pop(job.id, None)
        self.memory.alone_jobs.discard(job.id)

    # ---- keeping

    def load(self, saved: Any) -> None:
        """Restore what `save` returned; the last version had jobs as rows."""
        names = [each.name for each in fields(RunningProgram)]
        rows = {
            job: dict(zip(names, row, strict=False)) if isinstance(row, list) else row
            for job, row in saved.get("running", {}).items()
        }
        super().load({**saved, "running": rows})


def _is_settled(own: RunningProgram, report: Report, attempt: AttemptSource) -> bool:
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
