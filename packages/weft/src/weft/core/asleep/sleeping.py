"""Attempts that sleep: on their way there, there, and on their way back.

Times to put attempts to sleep and to wake them, as measured, by job and node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from weft.core.events.actions import Sleep
from weft.core.model.job import Allocation, Job, JobId
from weft.core.state.table import JobTable
from weft.core.stops import Rung
from weft.frozen import frozen

KEPT = 20  # of the last measurements of each
DOWN, UP = "down", "up"
# Seconds, and seconds per GB of device memory, where nothing was measured: one H200, driver 580.
FREEZE_S = 0.02
SUSPEND_S, SUSPEND_GB_S = {DOWN: 0.3, UP: 0.2}, {DOWN: 0.6, UP: 0.2}
LEAST_GB = 0.5  # below it the seconds say nothing of a GB


class StopTimes:
    """Seconds by rung, direction, node and program: the last of each."""

    def __init__(self) -> None:
        self._seen: dict[str, list[list[float]]] = {}

    def learn(self, job: Job, node: str, rung: Rung, way: str, gb: float, seconds: float) -> None:
        """An attempt with `gb` on its devices took so long on a node, `down` or `up`."""
        for key in (f"{rung}/{way}/{node}/{program_of(job)}", f"{rung}/{way}/{node}"):
            seen = self._seen.setdefault(key, [])
            seen.append([gb, seconds])
            del seen[:-KEPT]

    def seconds(self, job: Job, node: str, rung: Rung, way: str, gb: float) -> float:
        """Seconds to expect for a job, by what it or others took there."""
        own = self._seen.get(f"{rung}/{way}/{node}/{program_of(job)}")
        seen = own or self._seen.get(f"{rung}/{way}/{node}")
        if rung is Rung.FREEZE:
            return median(s for _, s in seen) if seen else FREEZE_S
        large = [(size, s) for size, s in seen or () if size >= LEAST_GB]
        if not large:
            return SUSPEND_S[way] + SUSPEND_GB_S[way] * gb
        return median(s / size for size, s in large) * max(gb, LEAST_GB)

    def save(self) -> dict[str, Any]:
        """All that was measured, as values that JSON has."""
        return {key: [list(measured) for measured in seen] for key, seen in self._seen.items()}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._seen = {key: [list(measured) for measured in seen] for key, seen in saved.items()}


def program_of(job: Job) -> str:
    """The key for a job's measurements: its model, or itself where it names none."""
    return job.model or f"job {job.id}"


@frozen
class Sleeping:
    """An attempt that was put to sleep on `on`, and goes on there.

    It is `there` since `since`; before that it was asked to. `device_gb` is what it holds of each
    of its devices, or held before it was suspended; 0 where unknown. `host_gb` is what it
    holds of the host's memory instead. `was` is how it slept before it was asked to sleep deeper.
    """

    job: JobId
    attempt: int
    rung: Rung
    on: Allocation
    since: float
    there: bool = False
    device_gb: float = 0.0
    host_gb: float = 0.0
    was: Rung | None = None

    @property
    def node(self) -> str:
        """The node it sleeps on, the first of several."""
        return self.on.slices[0].node

    def is_on(self, node: str) -> bool:
        """True if any of its devices is on a node."""
        return any(part.node == node for part in self.on.slices)


class Asleep:
    """Jobs that sleep, jobs that cannot, and the times it takes; a part of the state."""

    def __init__(self) -> None:
        self.sleepers: dict[JobId, Sleeping] = {}
        self.savers: set[JobId] = set()  # jobs with a checkpoint, which lose little by a stop
        self.unable: dict[JobId, tuple[Rung, ...]] = {}
        self.times = StopTimes()

    def __bool__(self) -> bool:
        return bool(self.sleepers)

    def find(self, job: JobId, attempt: int | None = None) -> Sleeping | None:
        """A job's attempt that sleeps or is about to; None if there is none, or another one."""
        sleeper = self.sleepers.get(job)
        return sleeper if sleeper is not None and attempt in (None, sleeper.attempt) else None

    def is_asleep(self, job: JobId) -> bool:
        """True if an attempt of a job is asleep by now."""
        sleeper = self.sleepers.get(job)
        return sleeper is not None and sleeper.there

    def note_saved(self, job: JobId, table: JobTable) -> None:
        if job in table:
            self.savers.add(job)

    def ask_to_sleep(self, sleeping: Sleeping) -> Sleep:
        """An attempt is asked to sleep."""
        self.sleepers[sleeping.job] = sleeping
        return Sleep(sleeping.job, sleeping.attempt, sleeping.rung)

    def mark_asleep(self, now: float, job: Job, rung: Rung, took_s: float, host_gb: float) -> None:
        """Note that an attempt is asleep."""
        before = self.sleepers[job.id]
        gb = before.device_gb * before.on.gpus or host_gb
        self.times.learn(job, before.node, rung, DOWN, gb, took_s)
        self.sleepers[job.id] = replace(before, rung=rung, since=now, there=True, host_gb=host_gb)

    def wake(self, job: Job, took_s: float) -> None:
        """Note that an attempt runs again."""
        before = self.sleepers.pop(job.id)
        gb = before.device_gb * before.on.gpus or before.host_gb
        self.times.learn(job, before.node, before.rung, UP, gb, took_s)

    def mark_refused(self, job: JobId) -> None:
        """An attempt could not be put to sleep that way; it is not tried again."""
        rung = self.sleepers.pop(job).rung
        self.unable[job] = (*self.unable.get(job, ()), rung)

    def drop(self, job: JobId) -> Sleeping | None:
        """Forget a sleeper, for whatever reason; return what it was."""
        return self.sleepers.pop(job, None)

    def forget(self, job: JobId) -> None:
        self.sleepers.pop(job, None)
        self.savers.discard(job)
        self.unable.pop(job, None)

    def save(self) -> dict[str, Any]:
        """All but the sleepers, as values that JSON has."""
        return {
            "savers": sorted(self.savers),
            "unable": {job: list(rungs) for job, rungs in sorted(self.unable.items())},
            "times": self.times.save(),
        }

    def load(self, saved: Mapping[str, Any], sleepers: Iterable[Sleeping]) -> None:
        self.sleepers = {sleeper.job: sleeper for sleeper in sleepers}
        self.savers = set(map(JobId, saved.get("savers", ())))
        self.unable = {
            JobId(job): tuple(map(Rung, rungs)) for job, rungs in saved.get("unable", {}).items()
        }
        self.times.load(saved.get("times", {}))
