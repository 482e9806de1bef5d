"""Jobs that share devices: how fast each of them gets on beside the others.

The same model is the simulator's truth and, unless noise is asked for, what the scheduler
believes. What a job does alone comes with the job (stage times and utilisation as hints), or
from its model's name if it is one that was measured, or is taken at its worst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from weft.core.events.report import Report
from weft.core.knowledge.knowledge import TunableBatch
from weft.core.knowledge.profile import MOST_CPU_PART, Profile, Sensitivity
from weft.core.knowledge.programs import program_of
from weft.core.model.job import Discipline, Job, JobId, Tier
from weft.core.protocols import Resident
from weft.formulas.sharing import lockstep
from weft.formulas.sharing.turns import (
    SPILL,
    gap_iterations,
    guarded_speed,
    paced_speed,
    slice_speed,
)
from weft.perf.sharing.batching import Batching, MeasuredBatchSizes, batch_size, untuned
from weft.perf.sharing.hinted_profile import read_hinted

Interfering = Callable[[Sequence[Profile]], Sequence[float]]
Host = Callable[[Job], Sensitivity | None]
# Stretch of all stages in groups of one to four, as Muri's authors calibrated it on V100.
CONTENTION = (1.0, 1.31, 1.478, 1.35)
MOST_GROUPS = 4096  # whose speeds are kept
MOST_PROGRAMS = 4096  # of which is remembered what their runs did


def no_sensitivity(job: Job) -> Sensitivity | None:  # noqa: ARG001 - of no job
    """Nothing is known about what CPU cores and host memory do."""
    return None


def never_waits(job: Job) -> bool:  # noqa: ARG001 - of no job
    """Allocations of no job wait for memory."""
    return False


def even_parts(group: Sequence[Profile]) -> list[float]:
    """An even part each: what jobs that keep a device busy get of each other."""
    return [1.0 / len(group)] * len(group)


@dataclass(frozen=True)
class Colocated:
    """Speeds of groups under every discipline.

    `profiles` says what a job does alone; `interfering` the speeds of a group that shares
    without an order; `contention` stretches interleaved stages by size of group. `sensitivity`
    says what CPU cores and host memory do for a job, `batching` what its batch size does; where
    that is unknown, it is learnt from jobs as they run. `waits` tells whose allocations wait for
    device memory.
    """

    profiles: Callable[[Job], Profile]
    interfering: Interfering = even_parts
    contention: tuple[float, ...] = CONTENTION
    gaps: bool = False
    sensitivity: Host = no_sensitivity
    batching: Callable[[Job], Batching | None] = untuned
    waits: Callable[[Job], bool] = never_waits
    _paces: dict[JobId, float] = field(default_factory=dict)
    _cpu_parts: dict[JobId, float] = field(default_factory=dict)
    _seen: dict[JobId, SeenProfile] = field(default_factory=dict)
    _batches: MeasuredBatchSizes = field(default_factory=MeasuredBatchSizes)
    _programs: dict[str, SeenProfile] = field(default_factory=dict)  # what their last runs did
    _known: dict[JobId, Profile] = field(default_factory=dict)
    _groups: dict[tuple[Discipline, tuple[Profile, ...]], Sequence[float]] = field(
        default_factory=dict
    )

    # ---- the truth

    def speed(self, resident: Resident, beside: Sequence[Resident]) -> float:
        return self._beside(resident, beside) * self._hosted(resident) * self._batched(resident)

    def _beside(self, resident: Resident, beside: Sequence[Resident]) -> float:
        if resident.job.demand.share < 1.0:
            return 1.0  # a job recorded on part of a device has its neighbours in its record
        if not beside and resident.on.sharing.tier is Tier.GUARANTEED:
            return 1.0
        profile = self._doing(resident)
        others = [self._doing(r) for r in beside]
        if resident.on.sharing.discipline is Discipline.PACED:
            return self._paced(resident, profile, beside, others)
        if resident.on.sharing.discipline is Discipline.TIMESLICE:
            claims = sum(r.on.sharing.share for r in beside) + resident.on.sharing.share
            return slice_speed(resident.on.sharing.share, claims)
        if resident.on.sharing.discipline is Discipline.LOCKSTEP and all(
            p.stages for p in (profile, *others)
        ):
            return self._in_step((resident, *beside), (profile, *others))
        return self._together((profile, *others), resident.on.sharing.discipline)[0]

    def _hosted(self, resident: Resident) -> float:
        """Return a job's speed by its part of the hosts: a gang waits for its poorest member."""
        known = self.sensitivity(resident.job)
        if known is None or resident.on.sharing.tier is Tier.OPPORTUNISTIC:
            return 1.0  # a job that claims no part of the host has what others leave
        parts = resident.on.slices
        return min(known.at(p.cpus / len(p.gpus), p.mem_gb / len(p.gpus)) for p in parts)

    def _batched(self, resident: Resident) -> float:
        """Return a job's speed at the batch size it was given."""
        known = self.batching(resident.job) if resident.on.batch is not None else None
        return (
            1.0 if known is None else known.speed(batch_size(resident.on.batch, known.known.init))
        )

    def _doing(self, resident: Resident) -> Profile:
        """Return a job's use of a device at the batch size it was given."""
        known = self.batching(resident.job) if resident.on.batch is not None else None
        if known is None:
            return self.profile(resident.job)
        return known.profile(batch_size(resident.on.batch, known.known.init))

    # ---- what is believed

    def tunable(self, job: Job) -> TunableBatch | None:
        batching = self.batching(job)
        return self._batches.known(job) if batching is None else batching.known

    def host(self, job: Job) -> Sensitivity | None:
        return self.sensitivity(job)

    def profile(self, job: Job) -> Profile:
        known = self._known.get(job.id)
        if known is None:
            batching = self.batching(job)
            known = (
                self.profiles(job) if batching is None else batching.profile(batching.known.init)
            )
            if known == Profile(tag=job.model):  # nothing is known
                known = self._recall(job).fill(known, waits=self.waits(job))
            elif not known.cpu_part:  # else the job's submitter told
                known = known.with_cpu_part(self._cpu_parts.get(job.id, 0.0))
            self._known[job.id] = known
        return known

    def speeds(
        self,
        jobs: Sequence[Job],
        kind: str,  # noqa: ARG002 - profiles are of the kind the job asked for
        discipline: Discipline,
    ) -> Sequence[float]:
        if len(jobs) == 1:
            return (1.0,)
        if discipline is Discipline.TIMESLICE:
            return [slice_speed(1.0, len(jobs))] * len(jobs)
        group = tuple(self.profile(job) for job in jobs)
        speeds = self._groups.get((discipline, group))
        if speeds is None:
            if len(self._groups) >= MOST_GROUPS:
                self._groups.clear()
            speeds = self._groups[discipline, group] = tuple(self._together(group, discipline))
        return speeds

    def observe(self, job: Job, kind: str, report: Report) -> None:  # noqa: ARG002
        """Keep what a job measured about its speed, and how long its GPU waits for the host.

        Neighbours stretch the rest of a step: the largest part is the one alone. What came with a
        job as hints was measured with its own data.
        """
        if report.pace is not None:
            self._paces[job.id] = report.pace
        self._batches.observe(job, report)
        if report.mem_gb is not None or report.steps:
            self._see(job, report)
        part = read_cpu_part(report)
        if part > self._cpu_parts.get(job.id, 0.0) and read_hinted(job) is None:
            self._cpu_parts[job.id] = part
            self._known.pop(job.id, None)

    def _see(self, job: Job, report: Report) -> None:
        before = self._seen.get(job.id, SeenProfile())
        seen = before.add(report)
        if seen != before:
            self._seen[job.id] = seen
            self._known.pop(job.id, None)

    def _recall(self, job: Job) -> SeenProfile:
        """Return observations of a job, else of the last run of its program."""
        seen = self._seen.get(job.id, SeenProfile())
        before = self._programs.get(program_of(job), SeenProfile())
        return (
            seen
            if seen.use is not None
            else before._replace(mem_gb=max(seen.mem_gb, before.mem_gb))
        )

    def pace(self, job: Job) -> float | None:
        progress = None if self.batching(job) is not None else self._batches.pace(job)
        return self._paces.get(job.id) if progress is None else progress

    def save(self) -> Any:
        """Return measurements of running jobs; the rest of their profiles follows from the jobs."""
        return {
            "paces": dict(self._paces),
            "cpu_parts": dict(self._cpu_parts),
            "batches": self._batches.save(),
            "seen": {job: list(seen) for job, seen in self._seen.items()},
            "programs": {program: list(seen) for program, seen in self._programs.items()},
        }

    def load(self, saved: Any) -> None:
        self._paces.update({JobId(job): pace for job, pace in saved["paces"].items()})
        self._cpu_parts.update({JobId(job): part for job, part in saved["cpu_parts"].items()})
        self._batches.load(saved.get("batches", {}))
        seen, programs = saved.get("seen", {}), saved.get("programs", {})
        self._seen.update({JobId(job): SeenProfile(*values) for job, values in seen.items()})
        self._programs.update({name: SeenProfile(*values) for name, values in programs.items()})

    def forget(self, job: Job) -> None:
        self._paces.pop(job.id, None)
        self._cpu_parts.pop(job.id, None)
        self._batches.forget(job)
        seen = self._seen.pop(job.id, None)
        if seen is not None and seen.use is not None and job.launch is not None:
            self._programs.pop(program_of(job), None)
            self._programs[program_of(job)] = seen
            if len(self._programs) > MOST_PROGRAMS:
                del self._programs[next(iter(self._programs))]
        self._known.pop(job.id, None)

    # ---- inside

    def _together(self, group: tuple[Profile, ...], discipline: Discipline) -> Sequence[float]:
        interleaved = discipline in (Discipline.LOCKSTEP, Discipline.WORK_CONSERVING)
        if interleaved and all(p.stages for p in group):
            return compute_interleaved_speeds(group, discipline, self._stretch(len(group)))
        return self.interfering(group)

    def _in_step(self, group: Sequence[Resident], profiles: Sequence[Profile]) -> float:
        """The speed of the first of a group that keeps the order it was given."""
        shifts = [round(r.on.sharing.phase * lockstep.SLOTS) for r in group]
        seconds = lockstep.period([p.stages for p in profiles], shifts)
        return profiles[0].step_s / (self._stretch(len(group)) * seconds)

    def _stretch(self, size: int) -> float:
        return self.contention[min(size, len(self.contention)) - 1]

    def _paced(
        self,
        resident: Resident,
        profile: Profile,
        beside: Sequence[Resident],
        others: Sequence[Profile],
    ) -> float:
        paired = list(zip(beside, others, strict=True))
        if not paired and resident.on.sharing.tier is Tier.GUARANTEED:
            return 1.0
        if resident.on.sharing.tier is Tier.GUARANTEED:
            return 1.0 if self.gaps else guarded_speed(_use(profile), _ask_for(resident, paired))
        firm = [p for r, p in paired if r.on.sharing.tier is Tier.GUARANTEED]
        loose = len(paired) - len(firm)
        if self.gaps:
            return _in_gaps(profile, firm, loose)
        # A gang waits for its slowest device; what is left there is shared by the loose.
        busy = max(map(_use, firm), default=0.0)
        speed = paced_speed(resident.on.sharing.share, busy, _use(profile)) / (1 + loose)
        cap = resident.on.sharing.gpu_mem_gb
        return speed * SPILL if cap is not None and cap < profile.mem_gb - 1e-6 else speed


def _use(profile: Profile) -> float:
    return min(profile.busy_s / profile.step_s, 1.0)


def _ask_for(resident: Resident, beside: Sequence[tuple[Resident, Profile]]) -> float:
    """Return the part of the busiest device's processors that opportunistic jobs want."""
    wanted = {(p.node, gpu): 0.0 for p in resident.on.slices for gpu in p.gpus}
    for other, profile in beside:
        if other.on.sharing.tier is Tier.OPPORTUNISTIC:
            for part in other.on.slices:
                for gpu in part.gpus:
                    if (part.node, gpu) in wanted:
                        wanted[part.node, gpu] += other.on.sharing.share * _use(profile)
    return max(wanted.values())


@lru_cache(maxsize=1 << 16)
def compute_interleaved_speeds(
    group: tuple[Profile, ...], discipline: Discipline, stretch: float
) -> tuple[float, ...]:
    """Speeds of jobs whose stages are interleaved, all stages `stretch` times as long."""
    stages = tuple(p.stages for p in group)
    period = stretch * lockstep.best(stages).seconds
    if discipline is Discipline.LOCKSTEP:
        return tuple(p.step_s / period for p in group)
    halved = [[stretch * seconds for seconds in lockstep.split_data(s)] for s in stages]
    speeds = lockstep.conserving_speeds([p.step_s for p in group], halved, period)
    return tuple(float(speed) for speed in speeds)


def _in_gaps(profile: Profile, firm: Sequence[Profile], loose: int) -> float:
    """As Muri's simulator has it: whole iterations of the guaranteed job for one of one's own."""
    slowest = profile.step_s * (2.0 if loose else 1.0)
    for host in firm:
        slowest = max(slowest, gap_iterations(profile.stages, host.stages) * host.step_s)
    return profile.step_s / slowest


# ---- What was observed about jobs that say nothing of themselves, as a profile
#
# By the watcher inside (steps, waiting for data) and from outside (device memory and use).


class SeenProfile(NamedTuple):
    """Observations of an unknown job: the most memory, the busiest time, the shortest step.

    `data` is the part of a step that waits for data. A part that could not be measured is negative.
    `usual_gb` is the memory that it holds all the time, 0 before its first step.
    """

    mem_gb: float = 0.0
    busy: float = -1.0
    step_s: float = 0.0
    data: float = -1.0
    usual_gb: float = 0.0

    def add(self, report: Report) -> SeenProfile:
        """With another report; before its first step a job is not busy yet."""
        seen = self._replace(mem_gb=max(self.mem_gb, report.mem_gb or 0.0))
        if not report.steps:
            return seen
        step_s = report.step_s or self.step_s
        held_gb = report.held_gb or self.usual_gb
        return seen._replace(
            usual_gb=min(held_gb, self.usual_gb or held_gb),
            busy=max(self.busy, -1.0 if report.sm is None else report.sm),
            step_s=min(step_s, self.step_s or step_s),
            data=max(self.data, -1.0 if report.data_s is None else read_cpu_part(report)),
        )

    @property
    def use(self) -> float | None:
        """The busy part of a device: by the driver, else the time not spent waiting for data."""
        if self.busy > 0.0:
            return self.busy
        return None if self.data < 0.0 else 1.0 - min(self.data, MOST_CPU_PART)

    @property
    def stages(self) -> tuple[float, ...]:
        """Seconds of a step on data, GPU and network; empty if the data stage is unknown."""
        if self.data < 0.0 or self.use is None:
            return ()
        return self.data * self.step_s, self.use * self.step_s, 0.0

    def fill(self, unknown: Profile, *, waits: bool = False) -> Profile:
        """A profile that was not declared; its memory bus is assumed as busy as the device.

        A job whose allocations wait needs room for what it holds all the time, not for its peak.
        """
        mem_gb = self.usual_gb if waits and self.usual_gb else self.mem_gb
        if self.use is None:
            return replace(unknown, mem_gb=mem_gb)
        return replace(
            unknown,
            step_s=self.step_s or unknown.step_s,
            stages=self.stages,
            mem_gb=mem_gb,
            gpu_use=self.use,
            bandwidth_use=self.use,
            cpu_part=min(max(self.data, 0.0), MOST_CPU_PART),
        )


def read_cpu_part(report: Report) -> float:
    """The fraction of a step in which the GPU waited for data; 0 if unknown."""
    if report.data_s is None or not report.step_s:
        return 0.0
    seconds = report.step_s - (report.token_s or 0.0)
    return min(report.data_s / seconds, 1.0) if seconds > 0.0 else 0.0
