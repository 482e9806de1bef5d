"""Arena: GPU kinds, sizes and parallelism together, by steps that cost or gain most samples.

Paper       Xue et al., "Arena: Efficiently Training Large Models via Dynamic Scheduling and
            Adaptive Parallelism Co-Design", EuroSys 2026.
Objective   samples per second of the whole cluster.
Needs       how fast execution plans are on which GPUs; goodput of jobs that declare none.
Controls    how many GPUs of which kind, where, and by which plan.
Cost        O(jobs x sizes) for speeds; up to 84 trials of O(jobs) for a job that finds no room,
            10 x O(jobs x kinds) for growth; then placement.
Deviations  GPUs are counted by kind and then placed whole, which stands for the authors' search of
            migrations; steps down are tried only on kinds of which too much is given. A job whose
            size is none of the powers of two keeps it. Speeds are not normalised between models, as
            in the paper; `normalised` divides each by the job's best. A cell (kind, GPUs, stages of
            the pipeline) is as fast as its fastest plan and a size as its fastest cell, which a job
            that declares plans receives; a job without plans searches inside it. Work counts at the
            speed at which it was done, a restart costs every job the same, and all jobs count: in
            the authors' simulator none of the three holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from weft.core.model.job import Config
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls, sizes_in_rounds
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.parts import Sizes
from weft.pieces.size.configs import rigid_configs, valid_configs
from weft.pieces.size.plans import place_plans, planned_rates

MANY, DEPTH, LESS_DEPTH = 150, 3, 2  # running jobs from which fewer steps down are tried
STEPS_UP = 10
WHERE = tax.classify(
    tax.Objective.THROUGHPUT,
    tax.NeededKnowledge.SPEEDS,
    tax.Preemption.RESIZES | tax.Preemption.MOVES,
    tax.Heterogeneity.SPEEDS,
    tax.Elasticity.GPUS | tax.Elasticity.PLANS,
    tax.TopologyKnowledge.CONSOLIDATED,
)


@frozen
class Arena:
    """Jobs in order of arrival, others halved or moved to make room; then single steps up.

    `interval` is the length of a round and `max_gpus` the most one job may get. Without `scaling`
    sizes stay as asked for, without `kinds` jobs stay on their kind, without `overtake` no job
    starts before an earlier job that waits. `normalised` counts speeds as parts of a job's best.
    """

    interval: float = 300.0
    max_gpus: int = 16
    scaling: bool = True
    kinds: bool = True
    overtake: bool = True
    normalised: bool = False

    stops = False

    @property
    def about(self) -> About:
        waits = "a large job waits while smaller ones that came later find room"
        return sizes_in_rounds(
            "arena", "Xue et al. 2026", self.interval, WHERE, also=Controls.PLAN, starves=waits
        )

    def decide(self, view: View) -> Plan:
        if view.empty:
            return Plan()
        return place_plans(view, self.choose_sizes(view).wanted)

    def choose_sizes(self, view: View) -> Sizes:
        """A size for every row that runs or starts."""
        by_size, speeds = self._find_sizes(view)
        still = ~view.preemptible() | view.restoring()
        at: dict[int, Size] = {}
        firm: dict[int, Config] = {}
        for row, on in enumerate(view.table.allocations):
            if on is None:
                continue
            held = view.cluster.kind_of(on), on.gpus
            if held not in speeds[row]:
                firm[row] = Config(held[0], len(on.slices), held[1])
            else:
                at[row] = held
        fixed = {row for row in at if still[row]}
        free = {kind: view.free.idle(kind) for kind in view.cluster.kinds}
        depth = LESS_DEPTH if len(at) + len(firm) > MANY else DEPTH
        standing = AllocationTrial(at, free)
        for row in np.flatnonzero(view.waiting()).tolist():
            wish = self._wish(standing, speeds[row], view.job(row).demand.gpus)
            room = wish and find_room(standing, row, wish, speeds, fixed, depth)
            if room:
                standing = room
            elif not self.overtake:
                break
        standing = climb(standing, speeds, fixed, STEPS_UP)
        return Sizes({**firm, **{row: by_size[size] for row, size in standing.at.items()}})

    def _find_sizes(self, view: View) -> tuple[dict[Size, Config], list[dict[Size, float]]]:
        """All sizes, and by row the speed at each that it may have.

        A model that fits no size up to `max_gpus` gets the least that holds it.
        """
        valid = valid_configs(view.cluster, self.max_gpus)
        configs = (*valid, *rigid_configs(view, valid))
        speeds = self._speeds(view, configs)
        if not all(speeds):
            more = valid_configs(view.cluster, max(view.cluster.gpus_by_kind.values()))
            configs = (*configs, *(config for config in more if config not in valid))
            wider = self._speeds(view, configs, any_size=True)
            speeds = [own or _least(wide) for own, wide in zip(speeds, wider, strict=True)]
        return {(config.kind, config.gpus): config for config in reversed(configs)}, speeds

    def _wish(self, standing: AllocationTrial, speeds: dict[Size, float], gpus: int) -> Size | None:
        """Choose the size nearest to the request: one with room first, then the fastest."""
        if not speeds:
            return None
        counts = {count for _, count in speeds}
        count = min(counts, key=lambda choice: (abs(np.log2(choice / max(gpus, 1))), -choice))
        sizes = [size for size in speeds if size[1] == count]
        return max(sizes, key=lambda size: (standing.free[size[0]] >= count, speeds[size]))

    def _speeds(
        self, view: View, configs: tuple[Config, ...], *, any_size: bool = False
    ) -> list[dict[Size, float]]:
        """By row: sizes that it may have, and samples per second there."""
        rates, _ = planned_rates(view, configs)
        speeds = []
        for row, job in enumerate(view.table.jobs):
            best = max(float(rates[row].max(initial=0.0)), EPS) if self.normalised else 1.0
            on = view.allocation(row)
            kind = "" if on is None else view.cluster.kind_of(on)
            mine: dict[Size, float] = {}
            for config, rate in zip(configs, rates[row].tolist(), strict=True):
                asked = config.gpus == job.demand.gpus
                power = config.gpus <= self.max_gpus and config.gpus & (config.gpus - 1) == 0
                stays = self.kinds or not kind or config.kind == kind
                if rate > 0.0 and stays and (asked or any_size or (power and self.scaling)):
                    mine.setdefault((config.kind, config.gpus), rate / best)
            speeds.append(mine)
        return speeds


def _least(speeds: dict[Size, float]) -> dict[Size, float]:
    """Of these sizes those of the fewest GPUs."""
    fewest = min((count for _, count in speeds), default=0)
    return {size: speed for size, speed in speeds.items() if size[1] == fewest}


# ---- Single steps through kinds and sizes: down so that a job finds room, up while GPUs are
# free


Size = tuple[str, int]  # a kind and GPUs
Speeds = Sequence[Mapping[Size, float]]  # by row: samples per second where it runs
EPS = 1e-9


@frozen
class AllocationTrial:
    """The size of each row, and the GPUs left of each kind; below 0 where overcommitted."""

    at: Mapping[int, Size]
    free: Mapping[str, int]

    @property
    def overfull(self) -> list[str]:
        """Kinds of which more is given than there is."""
        return [kind for kind, left in self.free.items() if left < 0]

    def put(self, row: int, to: Size) -> AllocationTrial:
        free = dict(self.free)
        if row in self.at:
            free[self.at[row][0]] += self.at[row][1]
        free[to[0]] -= to[1]
        return AllocationTrial({**self.at, row: to}, free)


def find_room(
    standing: AllocationTrial,
    row: int,
    wish: Size,
    speeds: Speeds,
    fixed: Collection[int],
    depth: int,
) -> AllocationTrial | None:
    """A newcomer with what it wishes, or what is possible if few others, and it, take less.

    Breadth first: each step halves one job of a kind that is overfull, or moves one to another
    kind. Of all that fits within `depth` steps the one with the most samples per second.
    """
    first = standing.put(row, wish)
    if not first.overfull:
        return first
    frontier, fitting = [first], list[AllocationTrial]()
    for _ in range(depth):
        after = [step for state in frontier for step in _steps_down(state, speeds, fixed)]
        frontier = [step for step in after if step.overfull]
        fitting += [step for step in after if not step.overfull]
    return max(fitting, key=lambda step: total_speed(step, speeds), default=None)


def total_speed(standing: AllocationTrial, speeds: Speeds) -> float:
    """Return the samples per second of all jobs."""
    return sum(speeds[row].get(size, 0.0) for row, size in standing.at.items())


def _steps_down(
    state: AllocationTrial, speeds: Speeds, fixed: Collection[int]
) -> Iterator[AllocationTrial]:
    """The cheapest halving on each kind of which too much is given, and the cheapest moves off."""
    for kind in state.overfull:
        there = [(row, gpus) for row, (on, gpus) in state.at.items() if on == kind]
        largest = max(gpus for _, gpus in there)
        movable = [(row, gpus) for row, gpus in there if row not in fixed]
        halved = [(row, (kind, n // 2)) for row, n in movable if 2 * n >= largest]
        moved = [[(row, (other, n)) for row, n in movable] for other in state.free if other != kind]
        for choices in (halved, *moved):
            losses = [
                (speeds[row].get(state.at[row], 0.0) - speeds[row][to], row, to)
                for row, to in choices
                if to in speeds[row]
            ]
            if losses:
                _, row, to = min(losses)
                yield state.put(row, to)


def climb(
    standing: AllocationTrial, speeds: Speeds, fixed: Collection[int], steps: int
) -> AllocationTrial:
    """Up to `steps` times the single step that gains most: another kind, or twice the GPUs."""
    for _ in range(steps):
        best: tuple[float, int, Size] | None = None
        for row in sorted(standing.at):
            if row in fixed:
                continue
            for gain, to in _steps_up(standing, row, speeds[row]):
                if gain > EPS and (best is None or gain > best[0]):
                    best = gain, row, to
        if best is None:
            return standing
        standing = standing.put(best[1], best[2])
    return standing


def _steps_up(
    standing: AllocationTrial, row: int, speeds: Mapping[Size, float]
) -> Iterator[tuple[float, Size]]:
    """Yield what a row gains by each single step that has room: kinds first, then growth."""
    kind, gpus = standing.at[row]
    now = speeds.get((kind, gpus), 0.0)
    for other, left in standing.free.items():
        if other != kind and gpus <= left and (other, gpus) in speeds:
            yield speeds[other, gpus] - now, (other, gpus)
    if gpus <= standing.free[kind] and (kind, 2 * gpus) in speeds:
        yield speeds[kind, 2 * gpus] - now, (kind, 2 * gpus)
