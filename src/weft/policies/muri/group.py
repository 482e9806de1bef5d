"""Who shares devices with whom: merged while GPUs are short, taken apart where it does not pay."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import Discipline
from weft.formulas.sharing import lockstep
from weft.policies.muri.admit import Types
from weft.policies.muri.merge import Bucket, Group, Mix, merge_all
from weft.policies.muri.queue import RESOURCES, Queue


class Grouping:
    """Groups of admitted jobs by what they are worth together."""

    def __init__(
        self, queue: Queue, discipline: Discipline, types: Types, *, matching: bool
    ) -> None:
        self._queue, self._discipline, self._types = queue, discipline, types
        self._matching = matching
        self._weights: dict[Mix, float] = {}
        nodes = queue.view.cluster.nodes
        self._device_gb = min((node.device_gb for node in nodes), default=0.0)

    def group(self, buckets: Sequence[Bucket]) -> None:
        """Merge while GPUs are short; take apart what would be slower than taking turns."""
        room = float(self._queue.free.idle())
        if self._matching:
            # The authors mean to merge the best pairs first, but their code does not.
            ordered = self._discipline is Discipline.WORK_CONSERVING
            merge_all(buckets, room, self._weight, best_first=ordered)
        else:
            self._merge_neighbours(buckets, room)
        for bucket in buckets:
            bucket.groups = [
                part
                for group in bucket.groups
                for part in ([group] if self._worthwhile(group) else _apart(group))
            ]

    def _merge_neighbours(self, buckets: Sequence[Bucket], room: float) -> None:
        required = float(sum(len(b.groups) * b.gpus for b in buckets))
        for bucket in buckets:
            merged: list[Group] = []
            for at, group in enumerate(bucket.groups):
                if at % bucket.most == 0 or required <= room:
                    merged.append(group)
                    continue
                last = merged[-1]
                merged[-1] = Group(last.rows + group.rows, last.profiles + group.profiles)
                required -= bucket.gpus
            bucket.groups = merged

    def _weight(self, mix: Mix) -> float:
        if mix not in self._weights:
            self._weights[mix] = self._worth(mix)
        return self._weights[mix]

    def _worth(self, mix: Mix) -> float:
        """The busy part of all resources in lock step; the sum of speeds otherwise."""
        group = self._types.profiles_of(mix)
        if not self._fits_memory(mix):
            return 0.0
        speeds = self._speeds(mix)
        if self._discipline is Discipline.LOCKSTEP and all(p.stages for p in group):
            period = group[0].step_s / speeds[0]
            return lockstep.efficiency([p.stages for p in group], period)
        return sum(speeds) / RESOURCES

    def _worthwhile(self, group: Group) -> bool:
        if len(group.rows) == 1:
            return True
        return self._fits_memory(group.profiles) and sum(self._speeds(group.profiles)) >= 1.0

    def _fits_memory(self, profiles: Sequence[int]) -> bool:
        return sum(p.mem_gb for p in self._types.profiles_of(profiles)) <= self._device_gb + 1e-9

    def _speeds(self, profiles: Sequence[int]) -> Sequence[float]:
        jobs = [self._types.samples[i] for i in profiles]
        return self._queue.view.sharing().speeds(jobs, self._queue.free.kinds[0], self._discipline)


def _apart(group: Group) -> list[Group]:
    return [
        Group([row], [profile]) for row, profile in zip(group.rows, group.profiles, strict=True)
    ]
