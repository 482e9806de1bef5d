"""Rubick: GPUs and execution plans together, by the slopes of sensitivity curves.

Paper       Zhang et al., "Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster
            Scheduling", MLSys 2025.
Objective   the sum of normalised throughputs, guarantees first.
Needs       how fast execution plans are on which GPUs; goodput of jobs that declare none.
Controls    how many GPUs of which kind, where, and by which plan.
Cost        O(jobs x sizes) for curves, O(moves x jobs) for slopes, then placement.
Deviations  GPUs are counted by kind and then placed, not searched node by node; CPU cores and host
            memory go in proportion. A speed is normalised by the job's best. Guaranteed jobs start
            in order of submission, others by slope; a waiting job without a guarantee never stops
            another altogether. A job that placement moves, as it is, to make room pays a restart,
            which its gate does not count. A running job moves to idle GPUs of a kind that is faster
            for it; the paper's cluster has one kind. Jobs are not shrunk in the authors' code,
            which also starts the least sensitive first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from weft.core.model.job import Allocation, Config, Job, JobId, Tier
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls, sizes_in_rounds
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.parts import Sizes
from weft.pieces.size.configs import rigid_configs, valid_configs
from weft.pieces.size.plans import place_plans, planned_rates

WHERE = tax.classify(
    tax.Objective.THROUGHPUT | tax.Objective.GUARANTEES,
    tax.NeededKnowledge.SPEEDS,
    tax.Preemption.STOPS | tax.Preemption.RESIZES | tax.Preemption.MOVES,
    tax.Heterogeneity.SPEEDS,
    tax.Elasticity.GPUS | tax.Elasticity.PLANS,
    tax.TopologyKnowledge.CONSOLIDATED,
)


@frozen
class RubickMemory:
    """The number of changes of GPUs or plan that each running job had so far."""

    changes: Mapping[JobId, int] = field(default_factory=dict)


@frozen
class Rubick:
    """Move GPUs from where they gain least to where they gain most, by the best plan at each size.

    `interval` is the length of a round, `gate` the fraction of its running time that a job must
    have spent on work before it is changed again, `max_gpus` the most one job may get.
    """

    interval: float = 60.0
    gate: float = 0.97
    max_gpus: int = 64

    stops = True  # a job without a guarantee makes room for one that has it

    @property
    def about(self) -> About:
        waits = "a job without a guarantee waits while others have a steeper slope"
        return sizes_in_rounds(
            "rubick", "Zhang et al. 2025", self.interval, WHERE, also=Controls.PLAN, starves=waits
        )

    def decide(self, view: View) -> Plan:
        if view.empty:
            return Plan()
        firm = np.flatnonzero(~self._movable(view)).tolist()
        plan = place_plans(view, self.choose_sizes(view).wanted, firm)
        other = [job for job, to in plan.changes.items() if _is_other(view, view.holds(job), to)]
        return replace(plan, memory=_count(view, other))

    def choose_sizes(self, view: View) -> Sizes:
        valid = valid_configs(view.cluster, self.max_gpus)
        configs = (*valid, *rigid_configs(view, valid))
        rates, goodput = planned_rates(view, configs)
        asked = _asked(view, configs, np.where(np.isnan(goodput), rates, goodput))
        ladders = build_ladders(view, configs, rates, asked)
        rungs = _Rungs(view, ladders, self._movable(view))
        rungs.start_waiting()
        rungs.grow()
        wanted = rungs.wanted()
        other = [job for job, on in view.held().items() if _is_resized(view, job, on, wanted)]
        return Sizes(wanted, _count(view, other))

    def _movable(self, view: View) -> Bools:
        """Rows that may be changed: the changes so far took little of their running time.

        A job that was moved to make room for others, as it was, has not been changed.
        """
        counts = recall(view, RubickMemory).changes
        changes = np.array([float(counts.get(job.id, 0)) for job in view.table.jobs])
        lost = changes * view.believed().restart_s(view.table)
        movable: Bools = lost <= (1.0 - self.gate) * view.ran()
        return movable & view.preemptible() & ~view.restoring()


def _is_other(view: View, was: Allocation | None, to: Allocation | None) -> bool:
    """Return true if a running job stops, or gets other kinds or numbers of GPUs or a new plan."""
    if was is None or to is None:
        return was is not None
    kind = view.cluster.kind_of
    return (kind(was), was.gpus, was.plan) != (kind(to), to.gpus, to.plan)


def _is_resized(view: View, job: JobId, on: Allocation, wanted: Mapping[int, Config]) -> bool:
    size = wanted.get(view.table.row(job))
    return size is None or (size.kind, size.gpus) != (view.cluster.kind_of(on), on.gpus)


def _count(view: View, changed: Collection[JobId]) -> RubickMemory:
    """Count the changes of each job, with those that are `changed` now."""
    counts = recall(view, RubickMemory).changes
    known = {job.id: counts.get(job.id, 0) + (job.id in changed) for job in view.table.jobs}
    return RubickMemory({job: count for job, count in known.items() if count})


def _asked(view: View, configs: tuple[Config, ...], goodput: Floats) -> Floats:
    """Return the believed speed of each row on what it asked for, on its best kind."""
    speeds = np.zeros(len(view.table))
    for row, job in enumerate(view.table.jobs):
        same = [at for at, config in enumerate(configs) if config.gpus == job.demand.gpus]
        speeds[row] = goodput[row, same].max(initial=0.0)
    return speeds


@dataclass(slots=True)
class _Rungs:
    """On which rung of which kind every row is to stand, and what that leaves free."""

    view: View
    ladders: list[dict[str, SizeLadder]]
    movable: Bools
    free: dict[str, int] = field(init=False)
    at: dict[int, tuple[str, int]] = field(init=False)
    firm: dict[int, Config] = field(init=False)

    def __post_init__(self) -> None:
        view = self.view
        self.free = {kind: view.free.idle(kind) for kind in view.cluster.kinds}
        self.at, self.firm = {}, {}
        for row, on in enumerate(view.table.allocations):
            if on is None:
                continue
            kind = view.cluster.kind_of(on)
            ladder = self.ladders[row].get(kind)
            counts = [size.gpus for size in ladder.sizes] if ladder is not None else []
            if self.movable[row] and on.gpus in counts:
                self.at[row] = kind, counts.index(on.gpus)
            else:
                self.firm[row] = Config(kind, len(on.slices), on.gpus)

    def wanted(self) -> dict[int, Config]:
        """Sizes of all rows that get any."""
        standing = {row: self.ladders[row][kind].sizes[at] for row, (kind, at) in self.at.items()}
        return {**self.firm, **standing}

    def start_waiting(self) -> None:
        """Guaranteed jobs in order of submission, then others, steepest first."""
        jobs = self.view.table.jobs
        waits = [r for r in range(len(jobs)) if r not in self.at and r not in self.firm]
        firm = [row for row in waits if is_guaranteed(jobs[row])]
        rest = [row for row in waits if not is_guaranteed(jobs[row])]
        for row in (*firm, *sorted(rest, key=lambda r: (-self._first_slope(r), r))):
            self._start(row)

    def _first_slope(self, row: int) -> float:
        return max((ladder.slope(-1, 0) for ladder in self.ladders[row].values()), default=0.0)

    def _start(self, row: int) -> None:
        """On the kind where it gains most for each GPU, if there is or can be made room."""
        rungs = [(kind, max(ladder.least, 0)) for kind, ladder in self.ladders[row].items()]
        rungs.sort(key=lambda rung: -self.ladders[row][rung[0]].slope(-1, rung[1]))
        for kind, rung in rungs:
            ladder = self.ladders[row][kind]
            if self._make_room(row, kind, ladder.gpus(rung), ladder.slope(-1, rung)):
                self.at[row] = kind, rung
                self.free[kind] -= ladder.gpus(rung)
                return

    def _make_room(self, row: int, kind: str, need: int, slope: float) -> bool:
        """Take GPUs from the job that loses least, if that is less than they gain."""
        before, free = dict(self.at), self.free[kind]
        urgent = is_guaranteed(self.view.job(row))
        while self.free[kind] < need:
            victim = self._flattest(kind, urgent=urgent)
            if victim is None or (not urgent and victim[0] >= slope):
                self.at, self.free[kind] = before, free
                return False
            self._step(victim[1], -1)
        return True

    def _flattest(self, kind: str, *, urgent: bool) -> tuple[float, int] | None:
        """The row that loses least for each GPU of a step down, and stays above its promise."""
        flattest: tuple[float, int] | None = None
        for row, (on, rung) in self.at.items():
            ladder = self.ladders[row][on]
            last = 0 if not urgent or is_guaranteed(self.view.job(row)) else -1
            if on == kind and rung > max(ladder.least, last):
                slope = ladder.slope(rung - 1, rung)
                if flattest is None or (slope, row) < flattest:
                    flattest = slope, row
        return flattest

    def _step(self, row: int, by: int) -> None:
        kind, rung = self.at[row]
        self._move(row, kind, rung + by)

    def _move(self, row: int, kind: str, rung: int) -> None:
        """Put a row on another rung, maybe of another kind; below the first it stops."""
        was, before = self.at.pop(row)
        self.free[was] += self.ladders[row][was].gpus(before)
        self.free[kind] -= self.ladders[row][kind].gpus(rung)
        if rung >= 0:
            self.at[row] = kind, rung

    def grow(self) -> None:
        """Give what is left to the steepest steps up, or over to a kind that is faster."""
        while True:
            steps = [step for row in self.at for step in self._steps(row)]
            if not steps:
                return
            _, row, kind, rung = max(steps)
            self._move(-row, kind, rung)

    def _steps(self, row: int) -> Iterator[tuple[float, int, str, int]]:
        """Steps of a row: its gain for each GPU it takes, less the row's number, and the rung."""
        at, rung = self.at[row]
        for kind, ladder in self.ladders[row].items():
            if kind == at:
                if rung + 1 < len(ladder.sizes) and self._fits(kind, ladder, rung, rung + 1):
                    yield ladder.slope(rung, rung + 1), -row, kind, rung + 1
                continue
            speed = self.ladders[row][at].speeds[rung]
            for to in range(max(ladder.least, 0), len(ladder.sizes)):
                if ladder.speeds[to] > ALIKE * speed and self._fits(kind, ladder, -1, to):
                    yield (ladder.speeds[to] - speed) / ladder.gpus(to), -row, kind, to

    def _fits(self, kind: str, ladder: SizeLadder, low: int, high: int) -> bool:
        return ladder.gpus(high) - ladder.gpus(low) <= self.free[kind]


# ---- Sensitivity curves: how fast the best plan of a job is on more and more GPUs of a kind


ALIKE = 1.01  # a size that is no more than this much faster than a smaller one is not worth it


@frozen
class SizeLadder:
    """Sizes of one job on one kind, each faster than the one before; speeds are parts of the best.

    `least` is the first rung that keeps what the job was promised, -1 where nothing was.
    """

    sizes: tuple[Config, ...]
    speeds: tuple[float, ...]
    least: int

    def gpus(self, rung: int) -> int:
        """GPUs on a rung; none below the first."""
        return self.sizes[rung].gpus if rung >= 0 else 0

    def slope(self, low: int, high: int) -> float:
        """Speed gained for each GPU between two rungs."""
        below = self.speeds[low] if low >= 0 else 0.0
        return (self.speeds[high] - below) / (self.gpus(high) - self.gpus(low))


def is_guaranteed(job: Job) -> bool:
    """Return true if a job is promised the speed of what it asked for."""
    return job.tier is Tier.GUARANTEED and job.priority >= 0.0


def build_ladders(
    view: View, configs: tuple[Config, ...], rates: Floats, promised: Floats
) -> list[dict[str, SizeLadder]]:
    """By row and kind; `rates` are rows x sizes, `promised` what each row must have at least."""
    every = sorted(range(len(configs)), key=lambda at: (configs[at].gpus, configs[at].nodes))
    order = {kind: [at for at in every if configs[at].kind == kind] for kind in view.cluster.kinds}
    alike: dict[tuple[bytes, float], dict[str, SizeLadder]] = {}  # jobs of a model have the same
    ladders = []
    for row, job in enumerate(view.table.jobs):
        floor = float(promised[row]) if is_guaranteed(job) else 0.0
        key = rates[row].tobytes(), floor
        if key not in alike:
            alike[key] = _build(configs, rates[row], order, floor)
        ladders.append(alike[key])
    return ladders


def _build(
    configs: tuple[Config, ...], rates: Floats, order: dict[str, list[int]], floor: float
) -> dict[str, SizeLadder]:
    best = max(float(rates.max(initial=0.0)), 1e-12)
    by_kind = {}
    for kind, mine in order.items():
        sizes, speeds = climb(configs, rates, mine)
        if sizes:
            least = _first(speeds, floor)
            by_kind[kind] = SizeLadder(sizes, tuple(speed / best for speed in speeds), least)
    return by_kind


def climb(
    configs: tuple[Config, ...], rates: Floats, order: list[int]
) -> tuple[tuple[Config, ...], tuple[float, ...]]:
    """The sizes in order that are worth having, with their speeds, which only rise."""
    sizes: list[Config] = []
    speeds: list[float] = []
    for at in order:
        rate = float(rates[at])
        if rate > 0.0 and (not speeds or rate > ALIKE * speeds[-1]):
            sizes.append(configs[at])
            speeds.append(rate)
    return tuple(sizes), tuple(speeds)


def _first(speeds: tuple[float, ...], floor: float) -> int:
    """The first rung that reaches a floor, or the last; -1 where there is none to reach."""
    if floor <= 0.0:
        return -1
    reached = np.flatnonzero(np.array(speeds) >= floor / ALIKE)
    return int(reached[0]) if len(reached) else len(speeds) - 1
