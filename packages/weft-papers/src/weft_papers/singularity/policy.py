"""Singularity: tiers of service by GPU fraction; jobs shrink, grow and move without losing work.

Paper       Shukla et al., "Singularity: Planet-scale, preemptive and elastic scheduling of AI
            workloads", arXiv 2202.07848, 2022.
Objective   the part of its GPU time that each tier is guaranteed over a window, then no idle
            device.
Needs       nothing of jobs but what they ask for: `priority` above normal is the premium tier,
            below it (or opportunistic) the basic one, else standard; the least size is one replica.
Controls    which jobs run, on how many of the GPUs they ask for (any divisor), and where.
Cost        O(jobs log jobs) for sizes, and O(nodes) for each job that starts, grows or moves; a
            move for others looks at every node of the kind.
Deviations  the paper describes goals and mechanisms but no scheduling policy: this one is ours. A
            premium job below its full size, and a standard one near its target, get all they can
            use first, those that hold most of it before the others; then every job gets its
            minimum, then what it holds, and the rest goes where it adds most throughput per device.
            Jobs are resized within what their demand allows: a rigid one keeps its size. Speeds on
            fewer devices are a law of four parts (`--perf splicing` makes it true), not measured.
            One region; a node is the domain that a gang should not leave, and a gang that no move
            can help is spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.core.errors import bad_values
from weft.core.model.job import Allocation, JobId
from weft.core.plan.about import About, Controls, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.taxonomy import Elasticity, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft.pieces.place.resize import resize
from weft_papers.singularity.sizes import Claim, ServiceTier, Sizes, choose_sizes, tier_of
from weft_papers.singularity.splicing import CheckpointCost, Iteration, find_legal_sizes

ABOUT = About(
    "singularity",
    "Shukla et al. 2022",
    controls=Controls.COUNT,
    starves="a basic job waits while jobs of higher tiers want every device",
    idles="a job's size must divide the number of GPUs it asked for",
    ties=Ties.NONE,
    taxonomy=classify(
        Objective.GUARANTEES | Objective.UTILIZATION,
        NeededKnowledge.NOTHING,
        Preemption.STOPS | Preemption.RESIZES | Preemption.MOVES,
        Elasticity.GPUS,
    ),
)
NEAR, CURED = 0.1, 0.3  # so far above its target a standard job is safe, and well off again


@frozen
class SingularityMemory:
    """GPUs that jobs held over the window, and the last time each was moved for others."""

    held: Mapping[JobId, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    moved: Mapping[JobId, float] = field(default_factory=dict)


@frozen
class Singularity:
    """Guarantee GPU fractions (`premium`, `standard`) over `window` seconds; basic is best effort.

    Guarantees are checked every `review` seconds while a job has less than it asked for. A
    move that puts a gang on one node is worth `gain_s` seconds of each of its devices; a job is
    moved at most once in `rest_s` seconds.
    """

    premium: float = 0.95
    standard: float = 0.70
    window: float = 3600.0
    review: float = 300.0
    gain_s: float = 120.0
    rest_s: float = 1800.0

    about = ABOUT

    def __post_init__(self) -> None:
        if not 0.0 <= self.standard <= self.premium <= 1.0 or min(self.window, self.review) <= 0.0:
            raise bad_values(
                "singularity",
                self,
                "premium standard window review",
                "0 <= standard <= premium <= 1, and times are above 0",
            )

    def decide(self, view: View) -> Plan:
        if view.empty:
            return Plan()
        memory = recall(view, SingularityMemory)
        held = self._account(view, memory)
        claims = [self._claim(view, row, held) for row in self._whole(view)]
        mark = view.free.mark()
        sizes = choose_sizes(claims, _room(view), Iteration())
        price = Price(self.gain_s, self.rest_s, CheckpointCost())
        placing = Placing(view, price, forget(memory.moved, view))
        changes = placing.place(sizes)
        view.free.rollback(mark)
        after = {
            job: add_point(points, view.now, _gpus(view, job, changes), view.now - self.window)
            for job, points in held.items()
        }
        short = any(after[view.job(c.row).id][-1][1] < c.sizes[-1] for c in claims)
        return Plan(
            {job: to for job, to in changes.items() if to != view.holds(job)},
            wake_at=view.now + self.review if short else None,
            memory=SingularityMemory(after, placing.moved),
        )

    def _account(
        self, view: View, memory: SingularityMemory
    ) -> dict[JobId, tuple[tuple[float, float], ...]]:
        """Return the GPUs that jobs held up to now; a loss since the last decision is dated now."""
        oldest, held = view.now - self.window, {}
        for row, job in enumerate(view.table.jobs):
            points = memory.held.get(job.id, ((job.submitted, 0.0),))
            held[job.id] = add_point(points, view.now, float(view.table.held[row]), oldest)
        return held

    def _whole(self, view: View) -> list[int]:
        """Rows whose devices are decided on: all but those that share one already."""
        shared = [job.demand.share < 1.0 for job in view.table.jobs]
        return np.flatnonzero(~(np.array(shared) & view.running())).tolist()

    def _claim(
        self, view: View, row: int, held: Mapping[JobId, tuple[tuple[float, float], ...]]
    ) -> Claim:
        job, on = view.job(row), view.allocation(row)
        tier, asked = tier_of(job), job.demand.gpus
        since = max(view.now - self.window, job.submitted)
        has = 0 if on is None else on.gpus
        fraction = gpu_fraction(held[job.id], asked, since, view.now) if view.now > since else 0.0
        target = (self.premium, self.standard, 0.0)[tier]
        sizes = find_legal_sizes(asked, job.demand.min)
        safe = target + (CURED if has == asked else NEAR)
        return Claim(
            row,
            tier,
            target - fraction if tier is not ServiceTier.BASIC else 0.0,
            sizes if has in (0, *sizes) else tuple(sorted({*sizes, has})),
            (view.cluster.kind_of(on),) if on is not None else acceptable(job, view.free),
            has,
            urgent=tier is ServiceTier.PREMIUM
            or (tier is ServiceTier.STANDARD and fraction < safe),
            firm=on is not None and not job.stoppable,
        )


def _room(view: View) -> dict[str, int]:
    """Devices of each kind that are idle, or held by jobs that have them whole."""
    room = dict(zip(view.free.kinds, view.free.idle_by_kind(), strict=True))
    for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
        if on is not None and job.demand.share == 1.0:
            room[view.cluster.kind_of(on)] += on.gpus
    return room


def _gpus(view: View, job: JobId, changes: Mapping[JobId, Allocation | None]) -> float:
    """Devices of a job once the changes are made."""
    on = changes.get(job, view.holds(job))
    return 0.0 if on is None else float(on.gpus)


# GPU fraction: device time received over that of an uninterrupted run at full size.

Points = Sequence[tuple[float, float]]  # (from when on, devices held), in order of time


def gpu_fraction(points: Points, asked: float, since: float, until: float) -> float:
    """Return the part of the GPUs asked for, from `since` to `until`, that was held; 1 for no time.

    1 where there is no time yet.
    """
    if until <= since or asked <= 0.0:
        return 1.0
    received = 0.0
    for i, (at, gpus) in enumerate(points):
        end = points[i + 1][0] if i + 1 < len(points) else until
        seconds = min(end, until) - max(at, since)
        if seconds > 0.0:
            received += seconds * min(gpus, asked)
    return received / (asked * (until - since))


def window_fractions(points: Points, asked: float, window: float, end: float) -> list[float]:
    """Return the GPU fraction of each window since the first point, the last one cut at `end`."""
    fractions, since = [], points[0][0]
    while since < end - 1e-6:
        until = min(since + window, end)
        fractions.append(gpu_fraction(points, asked, since, until))
        since = until
    return fractions


def add_point(
    points: Points, at: float, gpus: float, oldest: float
) -> tuple[tuple[float, float], ...]:
    """Add a change, and drop what ended before `oldest`."""
    kept: Iterable[tuple[float, float]] = points
    if not points or points[-1][1] != gpus:
        kept = (*(point for point in points if point[0] < at), (at, gpus))
    known = tuple(kept)
    first = max((i for i, (when, _) in enumerate(known) if when <= oldest), default=0)
    return known[first:]


# ---- Where sizes go: in place where they can, on one node where that is possible, moves at a
# price


Changes = dict[JobId, Allocation | None]


@frozen
class Price:
    """Rule of moves that pay: a gang on one node is worth `gain_s` seconds of each device.

    A job is moved for others' sake at most once in `rest_s` seconds.
    """

    gain_s: float
    rest_s: float
    checkpoint: CheckpointCost


@dataclass(slots=True)
class Placing:
    """One decision's places; `moved` is when jobs were last moved for others."""

    view: View
    price: Price
    moved: dict[JobId, float]
    changes: Changes = field(default_factory=dict)

    def place(self, sizes: Sizes) -> Changes:
        """Return the changes after which rows hold these sizes and no others hold any."""
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
            if rested and job.stoppable and job.demand.share == 1.0 and not job.demand.nodes:
                guests.append((job.demand.gpus, row, on))
        return [(row, on) for _, row, on in sorted(guests, key=lambda guest: guest[:2])]

    def _now(self, row: int) -> Allocation | None:
        """Return the allocation of a row after what was decided so far."""
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
