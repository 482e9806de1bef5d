"""Muri's groups under any order: jobs that use different resources take turns on devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Discipline, JobId, Sharing, Slice
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.formulas.sharing import lockstep
from weft.frozen import frozen
from weft.pieces.parts import Admit, Ranking
from weft.pieces.place.gangs import Placer
from weft.pieces.share.memory_order import doublings, order_memory
from weft_papers.muri.admit import RESOURCES, Admission, Admitted, MuriQueue
from weft_papers.muri.merge import Bucket, MergedGroup, Mix, merge_all


@frozen
class MuriGroups:
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
        taxonomy=tax.declare(tax.DeviceSharing.INTERLEAVED, tax.NeededKnowledge.PROFILES),
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
        queue = MuriQueue(view, ranking.rows[movable[ranking.rows]], key, self.size, place)
        admission = Admission(queue)
        buckets = admission.admit()
        admitted = Admitted(queue, Discipline(self.discipline), admission.types)
        Grouping(admitted, matching=self.matching).group(buckets)
        plan = Placement(admitted, best_order=self.ordering == "best").place(buckets)
        order = order_memory(view, plan.changes, lambda _: doublings(key))
        return replace(plan, memory_order=order)


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
            merged: list[MergedGroup] = []
            for at, group in enumerate(bucket.groups):
                if at % bucket.most == 0 or required <= room:
                    merged.append(group)
                    continue
                last = merged[-1]
                merged[-1] = MergedGroup(last.rows + group.rows, last.profiles + group.profiles)
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

    def _worthwhile(self, group: MergedGroup) -> bool:
        if len(group.rows) == 1:
            return True
        return self._fits_memory(group.profiles) and sum(self._speeds(group.profiles)) >= 1.0

    def _fits_memory(self, profiles: Sequence[int]) -> bool:
        return sum(p.mem_gb for p in self._types.profiles_of(profiles)) <= self._device_gb + 1e-9

    def _speeds(self, profiles: Sequence[int]) -> Sequence[float]:
        jobs = [self._types.samples[i] for i in profiles]
        return self._queue.view.sharing().speeds(jobs, self._queue.free.kinds[0], self._discipline)


def _apart(group: MergedGroup) -> list[MergedGroup]:
    return [
        MergedGroup([row], [profile])
        for row, profile in zip(group.rows, group.profiles, strict=True)
    ]


# ---- Where groups go: the best that find a place, on devices that a member already holds


class Placement:
    """Groups onto devices; their members take turns in the best order of stages, or the worst."""

    def __init__(self, admitted: Admitted, *, best_order: bool) -> None:
        self._queue, self._discipline, self._types = admitted
        self._best_order = best_order
        self._view, self._free = self._queue.view, self._queue.free

    def place(self, buckets: Sequence[Bucket]) -> Plan:
        """The best groups that find a place, large ones placed first."""
        best = {id(g): min(self._queue.key[r] for r in g.rows) for b in buckets for g in b.groups}
        ranked = sorted((g for b in buckets for g in b.groups), key=lambda g: best[id(g)])
        chosen = []
        for group in ranked:
            on = self._queue.place(self._queue.job(group.rows[0]), self._free)
            if on is not None:
                self._free.take(on)
                chosen.append(group)
        self._free.rollback(self._queue.emptied)
        placed = self._place_groups(chosen)
        kept = self._keep_undisturbed(placed)
        return Plan.target(self._view, {**self._keep_fixed(), **placed, **kept})

    def _keep_undisturbed(self, placed: Mapping[JobId, Allocation]) -> dict[JobId, Allocation]:
        """Jobs that were not chosen and whose devices no job got: the chosen stayed elsewhere."""
        kept: dict[JobId, Allocation] = {}
        for row in self._queue.order:
            job, held = self._queue.job(row).id, self._view.allocation(row)
            if held is not None and job not in placed and self._free.fits(held):
                self._free.take(held)
                kept[job] = held
        return kept

    def _keep_fixed(self) -> dict[JobId, Allocation]:
        moved = {self._queue.job(row).id for row in self._queue.order}
        return {job: on for job, on in self._view.held().items() if job not in moved}

    def _place_groups(self, chosen: Sequence[MergedGroup]) -> dict[JobId, Allocation]:
        """All jobs in place: where a member already is, if that leaves room for all."""
        by_size = sorted(chosen, key=lambda g: -self._queue.job(g.rows[0]).demand.gpus)
        kept: dict[int, Allocation] = {}
        for group in by_size:
            if (here := self._find_held(group)) is not None:
                self._free.take(here)
                kept[id(group)] = here
        for group in by_size:
            if id(group) not in kept:
                on = self._queue.place(self._queue.job(group.rows[0]), self._free)
                if on is None:
                    self._free.rollback(self._queue.emptied)
                    return self._from_scratch(by_size)
                self._free.take(on)
                kept[id(group)] = on
        return self._share(by_size, kept)

    def _from_scratch(self, by_size: Sequence[MergedGroup]) -> dict[JobId, Allocation]:
        kept: dict[int, Allocation] = {}
        for group in by_size:
            on = self._queue.place(self._queue.job(group.rows[0]), self._free)
            if on is not None:
                self._free.take(on)
                kept[id(group)] = on
        return self._share([g for g in by_size if id(g) in kept], kept)

    def _find_held(self, group: MergedGroup) -> Allocation | None:
        """Whole devices that a member holds and that no job has taken yet."""
        for row in group.rows:
            held = self._view.allocation(row)
            if held is None:
                continue
            whole = held if self._queue.most_on_device(row) == 1 else self._whole(held, 1)
            if self._free.fits(whole):
                return whole
        return None

    def _share(
        self, groups: Sequence[MergedGroup], on: dict[int, Allocation]
    ) -> dict[JobId, Allocation]:
        everything: dict[JobId, Allocation] = {}
        for group in groups:
            place = on[id(group)]
            if len(group.rows) == 1:
                everything[self._queue.job(group.rows[0]).id] = place
                continue
            devices = self._whole(place, len(group.rows))
            for row, sharing in zip(group.rows, self._terms(group), strict=True):
                everything[self._queue.job(row).id] = Allocation(devices.slices, sharing)
        return everything

    def _terms(self, group: MergedGroup) -> list[Sharing]:
        """An even claim each, and a place in the period."""
        members = self._types.profiles_of(group.profiles)
        share = 1.0 / len(members)
        phases = [0.0] * len(members)
        if self._discipline is Discipline.LOCKSTEP and all(p.stages for p in members):
            find = lockstep.best if self._best_order else lockstep.worst
            shifts = find(tuple(p.stages for p in members)).shifts
            phases = [shift / RESOURCES for shift in shifts]
        return [
            Sharing(share, phase=phase, gpu_mem_gb=p.mem_gb or None, discipline=self._discipline)
            for p, phase in zip(members, phases, strict=True)
        ]

    def _whole(self, on: Allocation, among: int) -> Allocation:
        """Return whole devices of an allocation, with the host's part for one of several jobs."""
        slices: list[Slice] = []
        for part in on.slices:
            mask = sum(1 << gpu for gpu in part.gpus)
            slices.append(
                self._free.slice_of(self._free.cluster.index[part.node], mask, 1.0 / among)
            )
        return Allocation(tuple(slices))
