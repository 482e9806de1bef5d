"""An iteration rolled around a circle: what a job sends falls on the same arcs again and again.

Jobs of different iteration times are drawn on one circle, whose length all of them divide (CASSINI,
NSDI 2024, section 3). Lengths are rounded to a grid first; where their common multiple would still
be too long, a stretch of several of the longest iterations stands for the circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import ceil, lcm

import numpy as np

from weft.core.knowledge.traffic import Traffic
from weft.core.state.cells import Floats
from weft.frozen import frozen

GRID_S = 1e-3
STEPS = (1, 2, 5)
COARSEST = 0.05  # of the shortest iteration: more would cost a job more than it gains
MOST_TURNS = 16  # of the longest iteration around one circle
SAMPLES = 72  # five degrees
MOST_SAMPLES = 720
LEAST_PER_TURN = 24  # samples of one iteration of the job that turns most often
EPS = 1e-9

Arc = tuple[float, float, float]  # begins at, lasts for (seconds), Gbit/s


@frozen
class Circle:
    """One iteration of a job: it lasts `period_s` seconds, and sends on each of `arcs`."""

    period_s: float
    arcs: tuple[Arc, ...]

    def demand(self, times: Floats) -> Floats:
        """Gbit/s that the job sends at `times`, if an iteration begins at 0; arcs are half open."""
        slack = EPS * self.period_s
        sent = np.zeros(len(times))
        for begin, seconds, gbps in self.arcs:
            since = np.mod(times - begin, self.period_s)
            since[since > self.period_s - slack] = 0.0  # rounding: it begins just now
            sent[since < seconds - slack] += gbps
        return sent

    @property
    def peak_gbps(self) -> float:
        """The most it sends at any time, if its arcs do not meet."""
        return max((gbps for _, _, gbps in self.arcs), default=0.0)

    def stretched(self, period_s: float) -> Circle:
        """Return the same iteration with a wait at its end, so that it takes the longer period."""
        return Circle(period_s, self.arcs)


def circle_of(traffic: Traffic) -> Circle:
    """Return one iteration of a job as a circle, as the job states it."""
    arcs = tuple((phase.start_s, phase.seconds, phase.gbps) for phase in traffic.talking)
    return Circle(traffic.iteration_s, arcs)


def choose_grid(groups: Collection[Collection[float]], grid_s: float = GRID_S) -> float:
    """The finest grid on which the periods of every group have a common multiple short enough.

    Multiples of `grid_s` by 1, 2, 5, 10...; the finest of all where none will do.
    """
    coarsest = COARSEST * min((min(group) for group in groups), default=0.0)
    for grid in _grids(grid_s, coarsest):
        if all(_is_short(to_grid(group, grid, grid_s)) for group in groups):
            return grid
    return grid_s


def round_periods(
    periods: Collection[float], grid_s: float = GRID_S, finest_s: float = GRID_S
) -> tuple[float, ...]:
    """Periods as multiples of a grid: the nearest of the finest one, the next above on others.

    A job can always keep to a longer period, by waiting; never to a shorter one.
    """
    return tuple(ticks * grid_s for ticks in to_grid(periods, grid_s, finest_s))


def to_grid(periods: Collection[float], grid_s: float, finest_s: float) -> list[int]:
    """Return each period in steps of the grid."""
    if grid_s <= finest_s:
        return [max(round(period / grid_s), 1) for period in periods]
    return [max(ceil(period / grid_s - EPS), 1) for period in periods]


def measure_circle(periods: Sequence[float], grid_s: float = GRID_S) -> float:
    """The length of the circle that jobs of these periods, all on the grid, are drawn on."""
    ticks = [max(round(period / grid_s), 1) for period in periods]
    return min(lcm(*ticks), MOST_TURNS * max(ticks)) * grid_s


def count_samples(periods: Sequence[float], perimeter_s: float) -> int:
    """Return how many points of a circle to check: more where some iterations are short."""
    turns = perimeter_s / min(periods)
    return int(min(max(SAMPLES, LEAST_PER_TURN * ceil(turns - EPS)), MOST_SAMPLES))


def _grids(finest_s: float, coarsest_s: float) -> Iterator[float]:
    scale = 1
    while True:
        for step in STEPS:
            grid = finest_s * step * scale
            if grid > max(coarsest_s, finest_s) + EPS:
                return
            yield grid
        scale *= 10


def _is_short(ticks: Sequence[int]) -> bool:
    return lcm(*ticks) <= MOST_TURNS * max(ticks)
