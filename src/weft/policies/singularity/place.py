"""Where sizes go: in place where they can, on one node where that is possible, moves at a price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.core.model.job import Allocation, JobId
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.formulas.sharing.splicing import Checkpoint
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.pieces.place.resize import resize
from weft.policies.singularity.sizes import Sizes

Changes = dict[JobId, Allocation | None]


@frozen
class Price:
    """When a move pays: a gang on one node is worth `gain_s` seconds of each of its devices.

    A job is moved for others' sake at most once in `rest_s` seconds.
    """

    gain_s: float
    rest_s: float
    checkpoint: Checkpoint


@dataclass(slots=True)
class Placing:
    """One decision's places; `moved` is when jobs were last moved for others."""

    view: View
    price: Price
    moved: dict[JobId, float]
    changes: Changes = field(default_factory=dict)

    def place(self, sizes: Sizes) -> Changes:
        """What changes if rows hold these sizes and no others hold any."""
        view, grow = self.view, list[int]()
        for row, on in enumerate(view.table.allocations):
            if on is None or view.job(row).demand.share < 1.0:
                continue
            size = sizes[row][1] if row in sizes else 0
            if size == on.gpus:
                continue
            view.free.give(on)
            self.changes[view.job(row).id] = None
            if 0 < size < on.gpus:
                self._take(row, _shrink(on, size, view.free))
            elif size:
                grow.append(row)
        new = [row for row in sizes if view.allocation(row) is None]
        new.sort(key=lambda row: (-sizes[row][1], row))
        for row in (*grow, *new):
            self._take(row, self._find(row, *sizes[row]))
        return self.changes

    def _take(self, row: int, on: Allocation | None) -> None:
        if on is not None:
            self.view.free.take(on)
        self.changes[self.view.job(row).id] = on

    def _find(self, row: int, kind: str, size: int) -> Allocation | None:
        view, free = self.view, self.view.free
        job, before = view.job(row), view.allocation(row)
        if job.demand.share < 1.0:
            return fewest_nodes(job, free)
        if before is not None and len(before.slices) == 1:
            node = view.cluster.index[before.slices[0].node]
            if free.on(node) >= size and free.fits(before):
                return resize(before, size, free)
        fits_a_node = size <= view.cluster.node_size(kind)
        if fits_a_node and free.best_fit(kind, size) is None:
            self._make_room(kind, size)
        return _spread(free, kind, size)

    # ---- defragmentation

    def _make_room(self, kind: str, size: int) -> None:
        """Move the jobs of smallest state off one node, if that costs less than it is worth."""
        best: tuple[float, dict[int, Allocation]] | None = None
        for node, machine in enumerate(self.view.cluster.nodes):
            if machine.kind == kind and machine.gpus >= size:
                cleared = self._clear(node, size)
                if cleared is not None and (best is None or cleared[0] < best[0]):
                    best = cleared
        if best is None or best[0] > self.price.gain_s * size:
            return
        for row, to in best[1].items():
            was = self._now(row)
            assert was is not None
            self.view.free.give(was)
            self._take(row, to)
            self.moved[self.view.job(row).id] = self.view.now

    def _clear(self, node: int, size: int) -> tuple[float, dict[int, Allocation]] | None:
        """GPU-seconds that it costs to make room on a node, and where its jobs would go."""
        free, mark = self.view.free, self.view.free.mark()
        cost, moves = 0.0, dict[int, Allocation]()
        for row, on in self._guests(node):
            if free.on(node) >= size:
                break
            free.give(on)
            to = self._elsewhere(node, on)
            if to is None:
                free.take(on)
                continue
            free.take(to)
            moves[row] = to
            ranks = self.view.job(row).demand.gpus
            cost += on.gpus * self.price.checkpoint.move_s(ranks)
        enough = free.on(node) >= size
        free.rollback(mark)
        return (cost, moves) if enough else None

    def _guests(self, node: int) -> list[tuple[int, Allocation]]:
        """Jobs wholly on a node that may be moved, the smallest state first."""
        view, name, guests = self.view, self.view.cluster.nodes[node].id, []
        for row, job in enumerate(view.table.jobs):
            on = self._now(row)
            if on is None or len(on.slices) > 1 or on.slices[0].node != name:
                continue
            rested = view.now - self.moved.get(job.id, -1e18) >= self.price.rest_s
            if rested and job.preemptible and job.demand.share == 1.0 and not job.demand.nodes:
                guests.append((job.demand.gpus, row, on))
        return [(row, on) for _, row, on in sorted(guests, key=lambda guest: guest[:2])]

    def _now(self, row: int) -> Allocation | None:
        """What a row holds, also after what was decided so far."""
        job = self.view.job(row).id
        return self.changes[job] if job in self.changes else self.view.allocation(row)

    def _elsewhere(self, node: int, on: Allocation) -> Allocation | None:
        """The node that fits a job best, other than the one it is on."""
        free, kind = self.view.free, self.view.cluster.nodes[node].kind
        for idle in range(on.gpus, self.view.cluster.node_size(kind) + 1):
            for other in free.nodes_with(kind, idle):
                if other != node:
                    return Allocation((free.slice(other, on.gpus),))
        return None


def _shrink(on: Allocation, size: int, free: Capacity) -> Allocation | None:
    """On one of its nodes if it fits there, else on those of its devices that are together."""
    for part in sorted(on.slices, key=lambda held: len(held.gpus)):
        if len(part.gpus) >= size:
            mask = sum(1 << gpu for gpu in part.gpus[:size])
            return Allocation((free.slice_of(free.cluster.index[part.node], mask),))
    return resize(on, size, free)


def _spread(free: Capacity, kind: str, size: int) -> Allocation | None:
    """On the node that fits best, else on the emptiest ones."""
    slices = []
    for node in free.opening(kind, size):
        taken = min(size, free.on(node))
        slices.append(free.slice(node, taken))
        size -= taken
    return Allocation(tuple(slices)) if slices and not size else None


def forget(moved: Mapping[JobId, float], view: View) -> dict[JobId, float]:
    """Moves of jobs that are still there."""
    return {job: at for job, at in moved.items() if job in view.table}
