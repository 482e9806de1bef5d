"""What jobs of the same model told together, running ones and ended ones.

A job is pooled with others that declare the same model: with those of its user if enough of them
reported, else with its tenant's, else with all jobs'. A job that declares none is on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from weft.core.model.job import Job, JobId
from weft.perf.goodput.belief import NO_NOISE
from weft.perf.goodput.fit import Row
from weft.perf.goodput.measurements import Measurements

Key = tuple[str, ...]
BINS = 20  # of progress, by which gradient noise is kept
ENOUGH = 3  # jobs that must have reported before a narrower group is believed
KEPT = 50  # of the last measured slow-downs
ASSUMED = 1.2  # work really needed over what goodput promises, before it was measured


@dataclass(slots=True)
class Group:
    """What jobs of one group measured.

    `noise` are squared norm and variance of gradients by part of the training, with how many told
    them; `most` is the most replicas any of them ran with, `batch` what one last trained with,
    `work` the samples of a whole training as last declared, `slower` by how much more of them one
    really needs than its goodput promises; `told` the jobs that reported, at most `ENOUGH`.
    """

    measured: dict[str, Measurements] = field(default_factory=dict)
    mixed: Measurements = field(default_factory=lambda: Measurements(close=0.0))
    noise: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    most: int = 0
    batch: float = 1.0
    work: float = math.nan
    slower: list[float] = field(default_factory=list)
    told: list[JobId] = field(default_factory=list)
    version: int = 0
    _needed: float | None = field(default=None, compare=False, repr=False)

    def observe(self, job: JobId, kind: str, row: Row) -> None:
        """A step was measured."""
        own = self.measured.get(kind)
        if own is None:
            own = self.measured[kind] = Measurements()
        before = own.version, self.most
        if own.observe(row):  # else all kinds together have it too
            self.mixed.observe(row)
        if own.version != before[0]:
            own.times()  # fitted as reports come in, not while a decision waits
        self.most = max(self.most, row.replicas)
        self.version += (own.version, self.most) != before
        if len(self.told) < ENOUGH and job not in self.told:
            self.told.append(job)

    def observe_noise(self, progress: float, sqr: float, var: float) -> None:
        """Gradients were measured so far into a training."""
        at = min(int(progress * BINS), BINS - 1)
        count, s, v = self.noise.get(at, (0, 0.0, 0.0))
        count += 1
        self.noise[at] = count, s + (sqr - s) / count, v + (var - v) / count

    def noise_at(self, progress: float) -> tuple[float, float]:
        """The noise measured nearest to a part of the training."""
        if not self.noise:
            return NO_NOISE
        return self.noise[min(self.noise, key=lambda at: abs(at - progress * BINS))][1:]

    def note_slower(self, ratio: float) -> None:
        """That many times the work that goodput promised was needed."""
        self._needed = None
        self.slower.append(ratio)
        del self.slower[:-KEPT]

    def needed(self) -> float:
        """Times the declared work that a training needs, in samples of believed goodput."""
        if self._needed is None:
            self._needed = median(self.slower) if self.slower else ASSUMED
        return self._needed

    def save(self) -> Any:
        """All of it as plain values."""
        return {
            "profiles": {kind: measurements.save() for kind, measurements in self.measured.items()},
            "mixed": self.mixed.save(),
            "noise": [[at, *estimate] for at, estimate in self.noise.items()],
            "most": self.most,
            "batch": self.batch,
            "work": None if math.isnan(self.work) else self.work,
            "slower": list(self.slower),
            "told": list(self.told),
            "version": self.version,
        }

    @classmethod
    def load(cls, saved: Any) -> Group:
        """What `save` gave."""
        return cls(
            {kind: Measurements().load(measured) for kind, measured in saved["profiles"].items()},
            Measurements(close=0.0).load(saved["mixed"]),
            {at: (count, sqr, var) for at, count, sqr, var in saved["noise"]},
            saved["most"],
            saved["batch"],
            math.nan if saved["work"] is None else saved["work"],
            list(saved["slower"]),
            [JobId(job) for job in saved["told"]],
            saved["version"],
        )


def groups_of(job: Job) -> tuple[Key, ...]:
    """Its user's jobs of the model, its tenant's, all jobs'; alone where it declares none."""
    if not job.model:
        return (("", job.id),)
    keys: tuple[Key, ...] = ((job.model,),)
    if job.tenant:
        keys = (job.model, job.tenant), *keys
    if job.user:
        keys = (job.model, job.tenant, job.user), *keys
    return keys


@dataclass(slots=True)
class Pool:
    """Groups by key; `keys` says which a job belongs to, the narrowest first."""

    keys: Callable[[Job], tuple[Key, ...]] = groups_of
    groups: dict[Key, Group] = field(default_factory=dict)

    def all_of(self, job: Job) -> list[Group]:
        """The groups of a job, made where they are new."""
        keys = self.keys(job)
        for key in keys:
            if key not in self.groups:
                self.groups[key] = Group()
        return [self.groups[key] for key in keys]

    def find(self, job: Job) -> Group | None:
        """The narrowest group in which enough jobs reported, else the widest where any did."""
        widest = None
        for key in self.keys(job):
            group = self.groups.get(key)
            if group is None or not group.measured:
                continue
            if len(group.told) >= ENOUGH:
                return group
            widest = group
        return widest

    def forget(self, job: Job) -> None:
        """A job has left: what only it reported is dropped."""
        for key in self.keys(job):
            if job.id in key:
                self.groups.pop(key, None)

    def save(self) -> Any:
        """All groups."""
        return [[list(key), group.save()] for key, group in self.groups.items()]

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        self.groups = {tuple(key): Group.load(group) for key, group in saved}
