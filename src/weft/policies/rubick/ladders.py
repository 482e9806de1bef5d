"""Sensitivity curves: how fast the best plan of a job is on more and more GPUs of a kind."""

from __future__ import annotations

import numpy as np

from weft.core.model.job import Config, Job, Tier
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.frozen import frozen

ALIKE = 1.01  # a size that is no more than this much faster than a smaller one is not worth it


@frozen
class Ladder:
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
    """Whether a job is promised the speed of what it asked for."""
    return job.tier is Tier.GUARANTEED and job.priority >= 0.0


def build_ladders(
    view: View, configs: tuple[Config, ...], rates: Floats, promised: Floats
) -> list[dict[str, Ladder]]:
    """By row and kind; `rates` are rows x sizes, `promised` what each row must have at least."""
    every = sorted(range(len(configs)), key=lambda at: (configs[at].gpus, configs[at].nodes))
    order = {kind: [at for at in every if configs[at].kind == kind] for kind in view.cluster.kinds}
    alike: dict[tuple[bytes, float], dict[str, Ladder]] = {}  # jobs of a model have the same
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
) -> dict[str, Ladder]:
    """By kind."""
    best = max(float(rates.max(initial=0.0)), 1e-12)
    by_kind = {}
    for kind, mine in order.items():
        sizes, speeds = _climb(configs, rates, mine)
        if sizes:
            least = _first(speeds, floor)
            by_kind[kind] = Ladder(sizes, tuple(speed / best for speed in speeds), least)
    return by_kind


def _climb(
    configs: tuple[Config, ...], rates: Floats, order: list[int]
) -> tuple[tuple[Config, ...], tuple[float, ...]]:
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
