"""Muri: groups of jobs that use different resources at different moments share GPUs.

Paper       Zhao et al., "Multi-Resource Interleaving for Deep Learning Training",
            SIGCOMM 2022.
Objective   mean completion time, by doing more work on the same devices.
Needs       stage times of an iteration of each job; with `known`, remaining times.
Controls    who runs, who shares devices with whom, and in which order their stages take turns.
Cost        a maximum-weight matching over types of groups per GPU count and round: it does not
            grow with the number of jobs of a type; O(n log n) for n active jobs besides.
Deviations  lock step is one discipline of two: `work-conserving` lets every member advance at
            its own rate, matches by the sum of speeds and merges the best pairs first. A group
            stays on the devices of one of its members where it can. A group must fit in device
            memory. Jobs without stage times are grouped by the speeds they are believed to
            reach together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from weft.core.about import About, Controls, Needs
from weft.core.errors import InvalidConfig
from weft.core.free import Free
from weft.core.model import Allocation, Discipline, Job, JobId, Sharing, Slice
from weft.core.plan import Plan
from weft.core.profile import Profile
from weft.core.table import Floats, Rows
from weft.core.view import View
from weft.formulas import lockstep
from weft.pieces.place.gangs import consolidated
from weft.policies.muri.grouping import Bucket, Group, Kind, merge_all

RESOURCES = 4


@dataclass(frozen=True, slots=True)
class Muri:
    """Interleave jobs with complementary needs on the same GPUs.

    `known` ranks by remaining service (Muri-S), else by attained service (Muri-L). `size` is
    the most jobs on a device. `ordering` is what stands in a group's period: the best order of
    stages, or the worst, to see what it is worth. `matching` false groups neighbours in rank.
    """

    known: bool = True
    discipline: Literal["lockstep", "work-conserving"] = "lockstep"
    size: int = 4
    ordering: Literal["best", "worst"] = "best"
    matching: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.size <= RESOURCES:
            raise InvalidConfig(
                f"muri groups 1 to {RESOURCES} jobs, not {self.size}",
                hint="there is one slot for each of storage, CPU, GPU and network",
            )

    @property
    def about(self) -> About:
        """Muri-S asks for remaining times; Muri-L does not."""
        return About(
            "muri",
            "Zhao et al. 2022",
            needs=Needs.REMAINING if self.known else Needs.NOTHING,
            controls=Controls.SHARE | Controls.PHASE,
            starves="" if not self.known else "short jobs may keep long ones waiting",
        )

    def decide(self, view: View) -> Plan:
        """Rank, admit as many jobs for each place as may share it, group, place."""
        movable = view.preemptible() | view.waiting()
        draft = _Draft(view, self, np.flatnonzero(movable))
        buckets = draft.admit()
        draft.group(buckets)
        return draft.place(buckets)


class _Draft:
    """One decision: the rows it may move, their ranks and their profiles."""

    def __init__(self, view: View, muri: Muri, rows: Rows) -> None:
        self.view, self.muri = view, muri
        self.free: Free = view.free
        service = view.remaining() if muri.known else view.ran()
        self.key: Floats = service * view.table.gpus
        self.order = self._ranked(rows)
        self.numbers: dict[Profile, int] = {}
        self.profiles: list[Profile] = []
        self.samples: list[Job] = []
        self.weights: dict[Kind, float] = {}
        for row in rows:
            if (on := view.allocation(row)) is not None:
                self.free.give(on)
        self.emptied = self.free.mark()

    def _ranked(self, rows: Rows) -> Rows:
        # Equal ranks: larger gangs first, and behind them those that have only just come.
        table = self.view.table
        new = table.submitted >= self.view.now
        size = np.where(new, 0.0, -table.gpus)
        among = np.zeros(len(table), dtype=bool)
        among[rows] = True
        return self.view.ranked(self.key, new.astype(float), size, among=among)

    # ---- admission

    def admit(self) -> list[Bucket]:
        """Take `size` jobs of a GPU count for every place that one of them finds."""
        queues: dict[object, list[int]] = {}
        for row in self.order:
            queues.setdefault(self._alike(int(row)), []).append(int(row))
        buckets = {
            key: Bucket(self._job(queue[0]).demand.gpus, self._most(queue[0]))
            for key, queue in queues.items()
        }
        used: set[int] = set()
        full: set[object] = set()
        for row in self.order:
            key = self._alike(int(row))
            if row in used or key in full:
                continue
            on = consolidated(self.view.job(row), self.free)
            if on is None:
                full.add(key)
                continue
            self.free.take(on)
            start = len(buckets[key].groups)
            for member in queues[key][start : start + self._most(row)]:
                buckets[key].groups.append(Group([member], [self._number(member)]))
                used.add(member)
        self.free.rollback(self.emptied)
        return list(buckets.values())

    def _alike(self, row: int) -> object:
        """Jobs that may share devices: as many, of the same kinds."""
        demand = self._job(row).demand
        return demand.gpus, demand.kinds, demand.share if demand.share < 1.0 else self._most(row)

    def _most(self, row: int) -> int:
        """Jobs on a device at most: a part of a device is nobody else's, nor is a shy job's."""
        job = self._job(row)
        return self.muri.size if job.shareable and job.demand.share >= 1.0 else 1

    def _number(self, row: int) -> int:
        job = self.view.job(row)
        profile = self.view.sharing().profile(job)
        if profile not in self.numbers:
            self.numbers[profile] = len(self.profiles)
            self.profiles.append(profile)
            self.samples.append(job)
        return self.numbers[profile]

    # ---- grouping

    def group(self, buckets: Sequence[Bucket]) -> None:
        """Merge while GPUs are short; take apart what would be slower than taking turns."""
        room = float(self.free.idle())
        if self.muri.matching:
            # The authors mean to merge the best pairs first, but their code does not.
            ordered = self.muri.discipline == "work-conserving"
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
                merged[-1] = Group(last.rows + group.rows, last.kinds + group.kinds)
                required -= bucket.gpus
            bucket.groups = merged

    def _weight(self, kind: Kind) -> float:
        if kind not in self.weights:
            self.weights[kind] = self._worth(kind)
        return self.weights[kind]

    def _worth(self, kind: Kind) -> float:
        """The busy part of all resources in lock step; the sum of speeds otherwise."""
        group = [self.profiles[i] for i in kind]
        if not self._fits_memory(kind):
            return 0.0
        speeds = self._speeds(kind)
        if self.muri.discipline == "lockstep" and all(p.stages for p in group):
            period = group[0].step_s / speeds[0]
            return lockstep.efficiency([p.stages for p in group], period)
        return sum(speeds) / RESOURCES

    def _worthwhile(self, group: Group) -> bool:
        if len(group.rows) == 1:
            return True
        return self._fits_memory(group.kinds) and sum(self._speeds(group.kinds)) >= 1.0

    def _fits_memory(self, kinds: Sequence[int]) -> bool:
        return sum(self.profiles[i].mem_gb for i in kinds) <= self._device_gb + 1e-9

    def _speeds(self, kind: Sequence[int]) -> Sequence[float]:
        jobs = [self.samples[i] for i in kind]
        return self.view.sharing().speeds(jobs, self.free.kinds[0], self._discipline)

    @cached_property
    def _discipline(self) -> Discipline:
        return Discipline(self.muri.discipline)

    @cached_property
    def _device_gb(self) -> float:
        return min((node.device_gb for node in self.view.cluster.nodes), default=0.0)

    # ---- placement

    def place(self, buckets: Sequence[Bucket]) -> Plan:
        """The best groups that find a place, large ones placed first."""
        best = {id(g): min(self.key[r] for r in g.rows) for b in buckets for g in b.groups}
        ranked = sorted((g for b in buckets for g in b.groups), key=lambda g: best[id(g)])
        chosen = []
        for group in ranked:
            on = consolidated(self._job(group.rows[0]), self.free)
            if on is not None:
                self.free.take(on)
                chosen.append(group)
        self.free.rollback(self.emptied)
        return Plan.target(self.view, {**self._fixed(), **self._placed(chosen)})

    def _fixed(self) -> dict[JobId, Allocation]:
        moved = {self._job(row).id for row in self.order}
        return {job: on for job, on in self.view.held().items() if job not in moved}

    def _placed(self, chosen: Sequence[Group]) -> dict[JobId, Allocation]:
        """Everybody in place: where a member already is, if that leaves room for all."""
        by_size = sorted(chosen, key=lambda g: -self._job(g.rows[0]).demand.gpus)
        kept: dict[int, Allocation] = {}
        for group in by_size:
            if (here := self._staying(group)) is not None:
                self.free.take(here)
                kept[id(group)] = here
        for group in by_size:
            if id(group) not in kept:
                on = consolidated(self._job(group.rows[0]), self.free)
                if on is None:
                    self.free.rollback(self.emptied)
                    return self._from_scratch(by_size)
                self.free.take(on)
                kept[id(group)] = on
        return self._shared(by_size, kept)

    def _from_scratch(self, by_size: Sequence[Group]) -> dict[JobId, Allocation]:
        kept: dict[int, Allocation] = {}
        for group in by_size:
            on = consolidated(self._job(group.rows[0]), self.free)
            if on is not None:
                self.free.take(on)
                kept[id(group)] = on
        return self._shared([g for g in by_size if id(g) in kept], kept)

    def _staying(self, group: Group) -> Allocation | None:
        """Whole devices that a member holds and nobody has taken yet."""
        for row in group.rows:
            held = self.view.allocation(row)
            if held is None:
                continue
            whole = held if self._most(row) == 1 else self._whole(held, 1)
            if self.free.fits(whole):
                return whole
        return None

    def _shared(
        self, groups: Sequence[Group], on: dict[int, Allocation]
    ) -> dict[JobId, Allocation]:
        everything: dict[JobId, Allocation] = {}
        for group in groups:
            place = on[id(group)]
            if len(group.rows) == 1:
                everything[self._job(group.rows[0]).id] = place
                continue
            devices = self._whole(place, len(group.rows))
            for row, sharing in zip(group.rows, self._terms(group), strict=True):
                everything[self._job(row).id] = Allocation(devices.slices, sharing)
        return everything

    def _terms(self, group: Group) -> list[Sharing]:
        """An even claim each, and a place in the period."""
        members = [self.profiles[i] for i in group.kinds]
        share = 1.0 / len(members)
        phases = [0.0] * len(members)
        if self.muri.discipline == "lockstep" and all(p.stages for p in members):
            find = lockstep.best if self.muri.ordering == "best" else lockstep.worst
            shifts = find(tuple(p.stages for p in members)).shifts
            phases = [shift / RESOURCES for shift in shifts]
        return [
            Sharing(share, phase=phase, gpu_mem_gb=p.mem_gb or None, discipline=self._discipline)
            for p, phase in zip(members, phases, strict=True)
        ]

    def _whole(self, on: Allocation, among: int) -> Allocation:
        """The same devices, with the host's part for one of several."""
        slices: list[Slice] = []
        for part in on.slices:
            mask = sum(1 << gpu for gpu in part.gpus)
            slices.append(self.free.slice_of(self.free.cluster.index[part.node], mask, 1.0 / among))
        return Allocation(tuple(slices))

    def _job(self, row: int) -> Job:
        return self.view.job(row)


def _apart(group: Group) -> list[Group]:
    return [Group([row], [kind]) for row, kind in zip(group.rows, group.kinds, strict=True)]
