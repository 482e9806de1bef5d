"""Jobs that hold GPUs and do not use them: since when, and what that has cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weft.core.knowledge.measured import MemoryWait, Sees
from weft.core.model.job import JobId
from weft.core.plan.reasons import GPU
from weft.core.protocols import Engine
from weft.frozen import frozen
from weft.runtime.records.job_records import JobRecord

UNUSED = 0.05  # a part of the time below which a GPU is not used
IDLE_S = 600.0  # until it is said
NOTICED = "idle"  # the level of the notice that says so
STILL_S, STILL_STEPS = 60.0, 10.0  # without a step, until a job has no speed any more


@frozen
class Use:
    """The last sight of a running job: when it did something, and how far it had come."""

    attempt: int
    since: float
    steps: float | None
    now: float
    gpus: float
    tenant: str
    known: bool

    @property
    def idle_s(self) -> float:
        """For how long it has done nothing; 0 where nothing tells what it does."""
        return self.now - self.since if self.known else 0.0


@dataclass(slots=True)
class IdleJobs:
    """A fold of looks at running jobs; times are the cluster's."""

    idle_s: float = IDLE_S
    uses: dict[JobId, Use] = field(default_factory=dict)
    wasted_gpu_s: dict[str, float] = field(default_factory=dict)

    def find_idle(self, running: Iterable[JobRecord], now: float) -> list[JobId]:
        """Take in what jobs report; those that are found idle for the first time."""
        before, self.uses = self.uses, {}
        idle = []
        for record in running:
            job, was = record.job.id, before.get(record.job.id)
            use = self.uses[job] = _use(record, was, now)
            if use.idle_s < self.idle_s:
                continue
            new = was is None or was.idle_s < self.idle_s or was.attempt != use.attempt
            more_s = use.idle_s if new or was is None else now - was.now
            spent = self.wasted_gpu_s.get(use.tenant, 0.0)
            self.wasted_gpu_s[use.tenant] = spent + use.gpus * more_s
            idle += [job] if new else []
        return idle

    def stands_still(self, record: JobRecord) -> bool:
        """True if the speed that a job last reported is of the past."""
        use, step_s = self.uses.get(record.job.id), record.report.step_s or 0.0
        same = use is not None and use.attempt == record.attempt
        return same and use is not None and use.idle_s > STILL_S + STILL_STEPS * step_s

    @property
    def idle(self) -> Mapping[JobId, Use]:
        return {job: use for job, use in self.uses.items() if use.idle_s >= self.idle_s}


def _use(record: JobRecord, was: Use | None, now: float) -> Use:
    report, on = record.report, record.allocation
    gpus = 0.0 if on is None else on.counted_gpus
    steps, busy = report.steps, report.sm
    known = gpus > 0.0 and (steps is not None or busy is not None)
    stood = was is not None and was.attempt == record.attempt and was.steps == steps
    idle = known and stood and (busy is None or busy < UNUSED)
    since = was.since if idle and was is not None else now
    return Use(record.attempt, since, steps, now, gpus, record.job.tenant, known)


def find_memory_wait(engine: Engine, record: JobRecord) -> MemoryWait | None:
    """The device memory that a running job waits for; None for others."""
    if record.running is None or Sees.WAITS not in engine.sees:
        return None
    return engine.measured(record.job.id, record.running).waits


def is_unguarded(engine: Engine, record: JobRecord) -> bool:
    """True for a running job whose device memory cannot wait, where that of others does."""
    if record.running is None or Sees.WAITS not in engine.sees:
        return False
    return engine.measured(record.job.id, record.running).unguarded


def describe_idle(use: Use, device: str = GPU) -> str:
    """`holds 4 GPUs and has not used them for 12 min: 0.8 GPU-hours`."""
    gpus, them = (device, "it") if use.gpus == 1 else (f"{device}s", "them")
    minutes, hours = use.idle_s / 60.0, use.gpus * use.idle_s / 3600.0
    return (
        f"holds {use.gpus:g} {gpus} and has not used {them} for {minutes:.0f} min: "
        f"{hours:.1f} {device.split()[-1]}-hours"
    )
