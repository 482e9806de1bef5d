"""Admission of jobs to groups: several for every place that one of them finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.core.knowledge.profile import Profile
from weft.core.model.job import Discipline, Job
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.pieces.place.gangs import Placer
from weft_papers.muri.merge import Bucket, MergedGroup


class JobTypes:
    """Jobs that use a device alike, by number: their profile, and one of them."""

    def __init__(self) -> None:
        self.profiles: list[Profile] = []
        self.samples: list[Job] = []
        self._numbers: dict[Profile, int] = {}

    def type_number(self, job: Job, profile: Profile) -> int:
        """The number of the jobs like `job`."""
        if profile not in self._numbers:
            self._numbers[profile] = len(self.profiles)
            self.profiles.append(profile)
            self.samples.append(job)
        return self._numbers[profile]

    def profiles_of(self, numbers: Sequence[int]) -> list[Profile]:
        """The profiles of these numbers."""
        return [self.profiles[i] for i in numbers]


class Admission:
    """Takes jobs from the queue into buckets of those that may share devices."""

    def __init__(self, queue: MuriQueue) -> None:
        self._queue = queue
        self.types = JobTypes()

    def admit(self) -> list[Bucket]:
        """Take `size` jobs of a GPU count for every place that one of them finds."""
        queue = self._queue
        lines: dict[object, list[int]] = {}
        for row in queue.order:
            lines.setdefault(self._alike(int(row)), []).append(int(row))
        buckets = {
            key: Bucket(queue.job(line[0]).demand.gpus, queue.most_on_device(line[0]))
            for key, line in lines.items()
        }
        used: set[int] = set()
        full: set[object] = set()
        for row in queue.order:
            key = self._alike(int(row))
            if row in used or key in full:
                continue
            on = queue.place(queue.job(row), queue.free)
            if on is None:
                full.add(key)
                continue
            queue.free.take(on)
            start = len(buckets[key].groups)
            for member in lines[key][start : start + queue.most_on_device(row)]:
                buckets[key].groups.append(MergedGroup([member], [self._type(member)]))
                used.add(member)
        queue.free.rollback(queue.emptied)
        return list(buckets.values())

    def _alike(self, row: int) -> object:
        """Jobs that may share devices: as many, of the same kinds."""
        demand = self._queue.job(row).demand
        whole = demand.share >= 1.0
        return demand.gpus, demand.kinds, self._queue.most_on_device(row) if whole else demand.share

    def _type(self, row: int) -> int:
        job = self._queue.job(row)
        return self.types.type_number(job, self._queue.view.sharing().profile(job))


# The jobs that one decision may move, in order, on a cluster that they have left.

RESOURCES = 4


class MuriQueue:
    """Rows in order, and the `key` they are ranked by; groups go where `place` says.

    Their devices are given back, as of `emptied`.
    """

    def __init__(self, view: View, order: Rows, key: Floats, size: int, place: Placer) -> None:
        self.view, self.key, self.size, self.place = view, key, size, place
        self.free: Capacity = view.free
        self.order = order
        for row in np.sort(order):
            if (on := view.allocation(row)) is not None:
                self.free.give(on)
        self.emptied = self.free.mark()

    def job(self, row: int) -> Job:
        """The job of a row."""
        return self.view.job(row)

    def most_on_device(self, row: int) -> int:
        """Most jobs on a device; one where a job asked for a part of it or does not share."""
        job = self.job(row)
        return self.size if job.shareable and job.demand.share >= 1.0 else 1


class Admitted(NamedTuple):
    """Jobs to group and place: the queue, how members of a group take turns, and their types."""

    queue: MuriQueue
    discipline: Discipline
    types: JobTypes
