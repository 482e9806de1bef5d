"""Search over a grid with few measurements: a Gaussian process and its lower confidence bound.

Srinivas et al., "Gaussian Process Optimization in the Bandit Setting", ICML 2010: measure next
where mean minus beta times deviation is least. Points already measured are not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, pi, sqrt

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen

Point = tuple[int, ...]
DELTA = 0.1
NOISE = 1e-3  # variance of a measurement, in units of the spread of what was measured
LENGTH = 0.35  # of the kernel, in units of a side of the grid
SCALE = 0.2  # the theory's beta is far too careful (Srinivas et al. 2010, section 6)
MOST = 4096  # points of a joint grid


def beta(points: int, step: int, delta: float = DELTA) -> float:
    """Return how many deviations below the mean to hope for, at the step-th measurement."""
    return sqrt(2.0 * log(points * step**2 * pi**2 / (6.0 * delta)))


def joint_grid(axes: Sequence[Sequence[int]], most: int = MOST) -> Floats:
    """All combinations, one a row; axes are thinned evenly, ends kept, where there are too many."""
    side = max(2, int(most ** (1.0 / len(axes))))
    thin = [np.asarray(_thin(axis, side), dtype=float) for axis in axes]
    return np.stack(np.meshgrid(*thin, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _thin(axis: Sequence[int], side: int) -> Sequence[int]:
    if len(axis) <= side:
        return axis
    return [axis[round(i * (len(axis) - 1) / (side - 1))] for i in range(side)]


@frozen
class GaussianBelief:
    """Mean and deviation at every point of a grid."""

    mean: Floats
    deviation: Floats


def posterior(seen: Floats, values: Floats, grid: Floats) -> GaussianBelief:
    """Fit a Gaussian process to measurements; coordinates are in units of the grid's sides.

    Values are centred on their mean and scaled by their spread; the kernel is squared
    exponential.
    """
    centre, spread = float(values.mean()), float(values.std()) or 1.0
    y = (values - centre) / spread
    inside = _kernel(seen, seen) + NOISE * np.eye(len(seen))
    across = _kernel(grid, seen)
    chol = np.linalg.cholesky(inside)
    weights = np.linalg.solve(chol.T, np.linalg.solve(chol, y))
    half = np.linalg.solve(chol, across.T)
    variance = np.maximum(1.0 - (half**2).sum(axis=0), 0.0)
    return GaussianBelief(centre + spread * (across @ weights), spread * np.sqrt(variance))


def _kernel(points: Floats, other: Floats) -> Floats:
    apart = ((points[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    near: Floats = np.exp(-apart / (2.0 * LENGTH**2))
    return near


def next_point(
    axes: Sequence[Sequence[int]],
    seen: Sequence[Point],
    values: Sequence[float],
    feasible: Callable[[Floats], Bools],
) -> Point | None:
    """Choose the next point: the least lower bound among feasible points not yet measured.

    `feasible` says which rows of an array of points may be asked for.
    """
    grid = joint_grid(axes)
    grid = grid[feasible(grid)]
    asked = np.asarray(seen, dtype=float)
    fresh = ~(grid[:, None, :] == asked[None, :, :]).all(axis=2).any(axis=1)
    if not fresh.any():
        return None
    low = np.array([axis[0] for axis in axes], dtype=float)
    span = np.array([max(axis[-1] - axis[0], 1) for axis in axes], dtype=float)
    measured = np.asarray(values, dtype=float)
    belief = posterior((asked - low) / span, measured, (grid - low) / span)
    bounds = belief.mean - SCALE * beta(len(grid), len(seen)) * belief.deviation
    bounds[~fresh] = np.inf
    return tuple(int(size) for size in grid[int(bounds.argmin())])


def has_stalled(values: Sequence[float], patience: int, gain: float) -> bool:
    """Return true if the last `patience` values are not better by `gain` than those before."""
    if len(values) <= patience:
        return False
    best = min(values[:-patience])
    return min(values[-patience:]) > best * (1.0 - gain)
