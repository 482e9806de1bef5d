"""Rounds of the window for each job: Nash welfare, less what the longest job has left.

Only the count of a job's rounds matters to the objective, so the program is over counts, and the
logarithm, being concave, needs no integer variables of its own.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.solve.linear_program import NoSolution, Sparse, maximise

Counts = NDArray[np.int64]

KNOTS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
AT_KNOTS = np.array([log(1e-6), *(log(k) for k in KNOTS[1:].tolist())])
SLOPES = np.diff(AT_KNOTS) / np.diff(KNOTS)
GAP = 1e-3  # of what a plan is worth, by which the solver may miss the best one
NODES = 200  # of the search, after which the best plan known is taken
EXACT_NODES = 2000
LEAST_SECOND = 1e-3
MOST_BESIDE = 4  # gangs of a round whose collisions are constraints of the solver
HEAVIEST = 1e6  # beyond this a weight only hurts the solver


@frozen
class RoundWindow:
    """Jobs, as columns, before `rounds` rounds of `round_s` seconds on `gpus` GPUs.

    `epochs` are all of a job's, `over` those done, `epoch_s` the seconds of one; `left_s` is what
    is predicted to remain, `weight` what its welfare counts, and `least_s` how much it must be run.
    """

    gangs: Floats
    epochs: Floats
    over: Floats
    epoch_s: Floats
    left_s: Floats
    weight: Floats
    gpus: float
    rounds: int
    round_s: float
    least_s: Floats

    def __len__(self) -> int:
        return len(self.gangs)

    @property
    def most_s(self) -> Floats:
        """Seconds of the epochs that are not over."""
        return np.asarray(np.maximum(self.epochs - self.over, 0.0) * self.epoch_s)

    def run_s(self, counts: Floats | Counts) -> Floats:
        """Seconds of epochs that fit into this many rounds."""
        return np.asarray(np.minimum(np.asarray(counts) * self.round_s, self.most_s))


def log_progress(progress: Floats | float) -> Floats:
    """The logarithm of finished epochs over all, linear between knots; finite at 0."""
    return np.asarray(np.interp(progress, KNOTS, AT_KNOTS))


def value(window: RoundWindow, counts: Floats | Counts, kappa: float) -> float:
    """Return the worth of a plan."""
    run = window.run_s(counts)
    progress = (window.over + run / window.epoch_s) / window.epochs
    welfare = float((window.weight * log_progress(progress)).sum())
    left = float(np.maximum(window.left_s - run, 0.0).max(initial=0.0))
    return welfare / (len(window) * window.rounds) - kappa * left


def choose_counts(
    window: RoundWindow, kappa: float, gap: float = GAP, most: Counts | None = None
) -> Counts | None:
    """Rounds of each job that are worth the most, no more than `most` of any.

    None where `least_s` cannot be met.
    """
    if not len(window) or window.gpus <= 0.0:
        return np.zeros(len(window), dtype=np.int64)
    solution = _find(window, kappa, gap, most, exact=False)
    return None if solution is None else np.rint(solution[: len(window)]).astype(np.int64)


def choose_rounds(window: RoundWindow, kappa: float) -> Bools | None:
    """Jobs x rounds that are worth the most, by the published program; None if there are none."""
    solution = _find(window, kappa, GAP, None, exact=True)
    if solution is None:
        return None
    return np.asarray(solution[-len(window) * window.rounds :].reshape(len(window), -1) > 0.5)


def _find(
    window: RoundWindow, kappa: float, gap: float, most: Counts | None, *, exact: bool
) -> Floats | None:
    if (window.least_s > window.run_s(np.full(len(window), window.rounds)) + 1e-6).any():
        return None
    if _dominates(window, kappa):
        least = _shorten_longest(window)
        if least is None:
            return None
        window, kappa = replace(window, least_s=least), 0.0
    try:
        return _solve(window, kappa, gap, most, exact=exact)
    except NoSolution:
        return None


def _dominates(window: RoundWindow, kappa: float) -> bool:
    """Return true if one round less of the longest remainder outweighs all welfare there is."""
    most = -float((window.weight * log_progress(window.over / window.epochs)).sum())
    return kappa * window.round_s > most / (len(window) * window.rounds)


def _shorten_longest(window: RoundWindow) -> Floats | None:
    """Return run times with the least longest remainder; None where nothing fits.

    A regulariser that dominates would drown welfare in the solver's tolerance: the least remainder
    is found first, and welfare is then maximised within it.
    """
    whole = window.run_s(np.full(len(window), window.rounds))
    room = window.gpus * window.rounds
    collisions = find_collisions(window.gangs, window.gpus)

    def least(longest: float) -> Floats:
        return np.maximum(np.minimum(window.left_s - longest, whole), window.least_s)

    def fits(longest: float) -> bool:
        rounds = np.ceil(np.maximum(least(longest), 0.0) / window.round_s - 1e-9)
        if float((window.gangs * rounds).sum()) > room + 1e-6:
            return False
        return all(rounds[jobs].sum() <= most * window.rounds for jobs, most in collisions)

    low = max(float((window.left_s - whole).max(initial=0.0)), 0.0)
    high = max(float(window.left_s.max(initial=0.0)), low)
    if not fits(high):
        return None
    if fits(low):
        high = low
    while high - low > LEAST_SECOND:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return np.maximum(least(high), 0.0)


def _solve(
    window: RoundWindow, kappa: float, gap: float, most: Counts | None, *, exact: bool
) -> Floats:
    """Columns: counts, seconds run between knots, and the most that is left beyond the least.

    If `exact`, every job and round as well.
    """
    n, seconds = len(window), window.epochs * window.epoch_s
    job, width, slope = _segments(window)
    whole = window.run_s(np.full(n, window.rounds))
    floor = max(float((window.left_s - whole).max()), 0.0)
    matrix, limits = _limits(window, job, floor)
    worth = window.weight[job] * slope / seconds[job] / (n * window.rounds)
    cost = np.concatenate([np.zeros(n), worth, [-kappa]])
    bound = np.full(n, float(window.rounds)) if most is None else most.astype(float)
    high = np.concatenate([bound, width * seconds[job], [np.inf]])
    integer = np.arange(len(cost)) < n
    nodes = NODES
    if exact:
        matrix, limits = _add_rounds(window, matrix, limits)
        more = n * window.rounds
        cost, high = np.append(cost, np.zeros(more)), np.append(high, np.ones(more))
        integer, nodes = np.append(integer, np.ones(more, dtype=bool)), EXACT_NODES
    scale = worth.max(initial=0.0) or kappa or 1.0
    solution = maximise(
        cost / scale, matrix, limits, high=high, whole=integer, gap=gap, nodes=nodes
    )
    return solution.x


def _add_rounds(window: RoundWindow, matrix: Sparse, limits: Floats) -> tuple[Sparse, Floats]:
    """Columns for each job and round: no round beyond the GPUs, no count beyond its rounds."""
    n, rounds, left = len(window), window.rounds, matrix.shape[1]
    job, at = (part.ravel() for part in np.indices((n, rounds)))
    cell = left + np.arange(n * rounds)
    rows = np.concatenate([at, rounds + job, rounds + np.arange(n)])
    columns = np.concatenate([cell, cell, np.arange(n)])
    values = np.concatenate([window.gangs[job], -np.ones(len(cell)), np.ones(n)])
    more = Sparse(rows, columns, values, (rounds + n, left + len(cell)))
    free = np.concatenate([np.full(rounds, window.gpus), np.zeros(n)])
    return matrix.above(more), np.append(limits, free)


def _limits(window: RoundWindow, job: NDArray[np.intp], floor: float) -> tuple[Sparse, Floats]:
    """Rows: the room; run <= rounds; left - run <= longest; run >= least; gangs that collide."""
    n, count = len(window), np.arange(len(window))
    segment, last = n + np.arange(len(job)), n + len(job)
    must = window.least_s > 0.0
    at = 1 + 2 * n + np.cumsum(must) - 1
    bound = must[job]
    entries = [
        (np.zeros(n), count, window.gangs),
        (1 + job, segment, np.ones(len(job))),
        (1 + count, count, np.full(n, -window.round_s)),
        (1 + n + job, segment, -np.ones(len(job))),
        (1 + n + count, np.full(n, last), -np.ones(n)),
        (at[job][bound], segment[bound], -np.ones(int(bound.sum()))),
    ]
    room = np.array([window.gpus * window.rounds])
    limits = [room, np.zeros(n), floor - window.left_s, -window.least_s[must]]
    row = 1 + 2 * n + int(must.sum())
    for together, most in find_collisions(window.gangs, window.gpus):
        entries.append((np.full(len(together), row), together, np.ones(len(together))))
        limits.append(np.array([float(most * window.rounds)]))
        row += 1
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = Sparse(rows.astype(np.intp), columns.astype(np.intp), values, (row, last + 1))
    return matrix, np.concatenate(limits)


def find_collisions(gangs: Floats, gpus: float) -> list[tuple[NDArray[np.intp], int]]:
    """Sets of jobs of which only that many fit in one round, beyond what GPUs in all tell.

    Those with more than a half, a third, ... of all GPUs; and every job that fits beside none of
    those with more than a half.
    """
    collisions = []
    for most in range(1, MOST_BESIDE + 1):
        large = np.flatnonzero(gangs > gpus / (most + 1) + 1e-9)
        if len(large) > most:
            collisions.append((large, most))
    for size in np.unique(gangs[gangs > gpus / 2 + 1e-9]):
        large = np.flatnonzero(gangs >= size)
        beside = np.flatnonzero((gangs < size) & (gangs + size > gpus + 1e-9))
        collisions += [(np.append(large, job), 1) for job in beside]
    return collisions


def _segments(window: RoundWindow) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Owner, width in progress and slope of every piece of logarithm that is still ahead."""
    now = (window.over / window.epochs)[:, None]
    low, high = KNOTS[None, :-1], KNOTS[None, 1:]
    width = np.clip(high - np.maximum(low, now), 0.0, None)
    job, piece = np.nonzero(width > 1e-12)
    return job, width[job, piece], SLOPES[piece]
