"""Numbers of workers and servers for a job: the least of a sum of two ratios.

The inner problem of SMD (INFOCOM 2021), for many jobs at once. A job takes
fixed + a / w + (b w + c) / p seconds on w workers and p servers, within caps on several resources.
For each bound theta of a geometric grid on the second ratio, the least of the first one under that
bound is a linear program; the best over the grid is within 1 + eps of the best there is. With two
variables and constraints that only ever limit from above, each program has a closed solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.core.state.cells import Floats
from weft.frozen import frozen

TINY = 1e-9


@frozen
class Inner:
    """Problems, one a row. `worker`, `server` and `caps` are rows x resources.

    `ratios` has four columns: a constant, the coefficients of 1/w, w/p and 1/p. `least` and `most`
    bound the workers, `servers` the servers from above; there is at least one of each.
    """

    ratios: Floats
    worker: Floats
    server: Floats
    caps: Floats
    least: Floats
    most: Floats
    servers: Floats

    def __len__(self) -> int:
        return len(self.ratios)

    def seconds(self, w: Floats, p: Floats) -> Floats:
        """Rows x points: completion times."""
        fixed, over_w, w_over_p, over_p = (column[:, None] for column in self.ratios.T)
        return np.asarray(fixed + over_w / w + (w_over_p * w + over_p) / p)

    def room(self, w: Floats) -> Floats:
        """Rows x points: the most servers, not rounded, beside that many workers."""
        left = self.caps[:, None, :] - w[:, :, None] * self.worker[:, None, :]
        fits = np.full(left.shape, np.inf)
        taken = np.broadcast_to(self.server[:, None, :], left.shape)
        np.divide(left, taken, out=fits, where=taken > 0.0)
        fits[(taken <= 0.0) & (left < -TINY)] = -np.inf
        return np.asarray(np.minimum(fits.min(axis=2), self.servers[:, None]))


class Sized(NamedTuple):
    """Workers, servers and seconds of each row; infinite seconds where nothing fits."""

    workers: Floats
    servers: Floats
    seconds: Floats


def by_grid(problem: Inner, eps: float = 0.1) -> Sized:
    """Whole numbers beside every point of the grid; of each row the best.

    Rounding at random can only end at one of a point's four neighbours. All are tried: servers
    never make a job slower here, so that the best neighbour has as many as there is room for.
    """
    w, _, _ = _points(problem, eps)
    both = np.concatenate([np.floor(w + TINY), np.ceil(w - TINY)], axis=1)
    return _best_whole(problem, both)


def by_scan(problem: Inner) -> Sized:
    """Every whole number of workers tried: the reference."""
    highest = int(max(problem.most.max(initial=1.0), 1.0))
    w = np.tile(np.arange(1.0, highest + 1.0), (len(problem), 1))
    return _best_whole(problem, w)


def _points(problem: Inner, eps: float) -> tuple[Floats, Floats, Floats]:
    """Rows x thetas: the solution of each linear program; NaN where it has none."""
    low, high = _bounds(problem)
    known = (low > 0.0) & np.isfinite(high)
    ratio = np.divide(high, low, out=np.ones(len(low)), where=known)
    count = np.ceil(np.log(np.maximum(ratio, 1.0)) / np.log1p(eps) - TINY) + 1
    # A job that exchanges nothing needs one program; one that fits nowhere needs none.
    powers = np.arange(int(count.max(initial=1.0)))
    theta = np.where(known, low, 0.0)[:, None] * (1.0 + eps) ** powers
    theta[powers[None, :] >= count[:, None]] = np.nan
    w = _most_workers(problem, theta)
    w[np.isnan(low)] = np.nan
    return w, problem.room(w), count


def _bounds(problem: Inner) -> tuple[Floats, Floats]:
    """Least and most of the second ratio: linear-fractional programs with known corners."""
    least = np.maximum(problem.least, 1.0)
    servers = problem.room(least[:, None])[:, 0]
    fits = (servers >= 1.0 - TINY) & (least <= problem.most)
    _, _, w_over_p, over_p = problem.ratios.T
    most = _cap(problem, problem.caps - problem.server, problem.worker)
    low = (w_over_p * least + over_p) / np.where(fits, np.maximum(servers, 1.0), np.nan)
    return low, np.where(fits, w_over_p * np.minimum(most, problem.most) + over_p, np.nan)


def _most_workers(problem: Inner, theta: Floats) -> Floats:
    """Rows x thetas: most workers while the second ratio stays below theta.

    The fewest servers that allow that are max(1, (b w + c) / theta): each resource then limits
    the workers by two straight lines, and so does the number of servers.
    """
    _, _, b, c = problem.ratios.T
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(theta > 0.0, b[:, None] / theta, 0.0)
        base = np.where(theta > 0.0, c[:, None] / theta, 0.0)
        most = np.minimum(
            _cap(problem, problem.caps - problem.server, problem.worker)[:, None],
            problem.most[:, None],
        )
        by_servers = (problem.servers[:, None] - base) / each
        most = np.minimum(most, np.where(each > 0.0, by_servers, np.inf))
        for r in range(problem.caps.shape[1]):
            o, s, v = (m[:, r, None] for m in (problem.worker, problem.server, problem.caps))
            taken = o + s * each
            limit = np.where(taken > 0.0, (v - s * base) / taken, np.inf)
            most = np.minimum(most, limit)
    infeasible = np.isnan(theta) | (most < np.maximum(problem.least, 1.0)[:, None] - TINY)
    return np.where(infeasible, np.nan, np.maximum(most, 1.0))


def _cap(problem: Inner, left: Floats, each: Floats) -> Floats:
    """Most workers by what is left of every resource; nothing where one is overdrawn."""
    fits = np.full(left.shape, np.inf)
    np.divide(left, each, out=fits, where=each > 0.0)
    fits[(each <= 0.0) & (left < -TINY)] = -np.inf
    return np.asarray(fits.min(axis=1, initial=np.inf)) if len(problem) else np.zeros(0)


def _best_whole(problem: Inner, w: Floats) -> Sized:
    """The best of some whole numbers of workers, each with all servers there is room for."""
    allowed = (w >= problem.least[:, None]) & (w <= problem.most[:, None]) & (w >= 1.0)
    w = np.where(allowed, w, 1.0)
    p = np.floor(problem.room(w) + TINY)
    fits = allowed & (p >= 1.0)
    seconds = np.where(fits, problem.seconds(w, np.maximum(p, 1.0)), np.inf)
    at = seconds.argmin(axis=1)[:, None]
    workers, servers, best = (np.take_along_axis(m, at, axis=1)[:, 0] for m in (w, p, seconds))
    return Sized(workers, np.maximum(servers, 1.0), best)
