"""Muri's groups under any order: jobs that use different resources take turns on devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Discipline
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Knowledge, Sharing, declare
from weft.core.plan.view import View
from weft.formulas.sharing import lockstep
from weft.frozen import frozen
from weft.pieces.parts import Admit, Ranking
from weft.pieces.place.gangs import Placer
from weft.policies.muri.admit import RESOURCES, Admission, Admitted, Queue
from weft.policies.muri.merge import Bucket, Group, Mix, merge_all
from weft.policies.muri.place import Placement


@frozen
class Groups:
    """Groups of jobs with complementary stages share GPUs, up to `size` on each.

    `ordering` is what stands in a group's period: the best order of stages, or the worst.
    `matching` false groups neighbours in rank.
    """

    discipline: Literal["lockstep", "work-conserving"] = "lockstep"
    size: int = 4
    ordering: Literal["best", "worst"] = "best"
    matching: bool = True

    about = About(
        "muri",
        "Zhao et al. 2022",
        controls=Controls.SHARE | Controls.PHASE,
        taxonomy=declare(Sharing.INTERLEAVED, Knowledge.PROFILES),
    )
    with_stops = True

    def __post_init__(self) -> None:
        if not 1 <= self.size <= RESOURCES:
            raise InvalidConfig(
                f"muri groups 1 to {RESOURCES} jobs, not {self.size}",
                hint="there is one slot for each of storage, CPU, GPU and network",
            )

    def start(self, view: View, ranking: Ranking, _admit: Admit, place: Placer) -> Plan:
        """Admit as many jobs for each place as may share it, group, place."""
        movable = view.preemptible() | view.waiting()
        key = ranking.key
        if key is None:
            key = np.empty(len(view.table))
            key[ranking.rows] = np.arange(len(ranking.rows))
        queue = Queue(view, ranking.rows[movable[ranking.rows]], key, self.size, place)
        admission = Admission(queue)
        buckets = admission.admit()
        admitted = Admitted(queue, Discipline(self.discipline), admission.types)
        Grouping(admitted, matching=self.matching).group(buckets)
        return Placement(admitted, best_order=self.ordering == "best").place(buckets)


# ---- merged while GPUs are short, taken apart where it does not pay


class Grouping:
    """Groups of admitted jobs by what they are worth together."""

    def __init__(self, admitted: Admitted, *, matching: bool) -> None:
        self._queue, self._discipline, self._types = admitted
        self._matching = matching
        self._weights: dict[Mix, float] = {}
        nodes = self._queue.view.cluster.nodes
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
