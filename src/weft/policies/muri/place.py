"""Where groups go: the best that find a place, on devices that a member already holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.core.model.job import Allocation, Discipline, JobId, Sharing, Slice
from weft.core.plan.plan import Plan
from weft.formulas.sharing import lockstep
from weft.policies.muri.admit import RESOURCES, Admitted
from weft.policies.muri.merge import Bucket, Group


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
        """Jobs that were not chosen and whose devices nobody got: the chosen stayed elsewhere."""
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

    def _place_groups(self, chosen: Sequence[Group]) -> dict[JobId, Allocation]:
        """Everybody in place: where a member already is, if that leaves room for all."""
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

    def _from_scratch(self, by_size: Sequence[Group]) -> dict[JobId, Allocation]:
        kept: dict[int, Allocation] = {}
        for group in by_size:
            on = self._queue.place(self._queue.job(group.rows[0]), self._free)
            if on is not None:
                self._free.take(on)
                kept[id(group)] = on
        return self._share([g for g in by_size if id(g) in kept], kept)

    def _find_held(self, group: Group) -> Allocation | None:
        """Whole devices that a member holds and nobody has taken yet."""
        for row in group.rows:
            held = self._view.allocation(row)
            if held is None:
                continue
            whole = held if self._queue.most(row) == 1 else self._whole(held, 1)
            if self._free.fits(whole):
                return whole
        return None

    def _share(self, groups: Sequence[Group], on: dict[int, Allocation]) -> dict[JobId, Allocation]:
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

    def _terms(self, group: Group) -> list[Sharing]:
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
        """The same devices, with the host's part for one of several."""
        slices: list[Slice] = []
        for part in on.slices:
            mask = sum(1 << gpu for gpu in part.gpus)
            slices.append(
                self._free.slice_of(self._free.cluster.index[part.node], mask, 1.0 / among)
            )
        return Allocation(tuple(slices))
