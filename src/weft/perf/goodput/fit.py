"""Fit the step-time model to what a job measured about itself.

The loss is Pollux's: root mean square errors of the logarithms of gradient and step times, with
a light pull of gamma to 1 and of the slopes to 0. Regimes a job has not run in yet are left
optimistic, so that a scheduler dares to try them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.perf.goodput.model import TINY, Floats, StepTime

Bools = NDArray[np.bool_]

START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.2)
GAMMA = (1.0, 10.0)
FLOOR = 1e-4  # errors below are as good as none
STEPS = 60
GAMMA_PULL, SLOPE_PULL = 1e-3, 1e-2
ALONE, APART, TOGETHER = 0, 2, 4  # where the parameters of T_sync in a regime are
AGAINST = ([0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, -1.0, 1.0, 0.0])


class Row(NamedTuple):
    """One measured configuration: nodes, replicas, samples per GPU; gradient and step seconds."""

    nodes: int
    replicas: int
    local: int
    grad_s: float
    step_s: float


def fit(rows: Iterable[Row]) -> StepTime:
    """The parameters that explain the rows best; the order of rows does not matter."""
    return _fit(tuple(sorted(set(rows))))


@lru_cache(maxsize=65_536)
def _fit(rows: tuple[Row, ...]) -> StepTime:
    columns = zip(*rows, strict=True)
    nodes, replicas, local, grad_s, step_s = (np.array(c, dtype=float) for c in columns)
    start, free = _start(nodes, replicas, local, grad_s, step_s)
    fitted = minimise(Problem(nodes, replicas, local, np.log(grad_s), np.log(step_s)), start, free)
    if not (nodes > 1).any():
        fitted[2] = max(fitted[2], 1.1 * fitted[4])
        fitted[3] = max(fitted[3], 1.1 * fitted[5])
    return StepTime(*fitted.tolist())


def _start(
    nodes: Floats, replicas: Floats, local: Floats, grad_s: Floats, step_s: Floats
) -> tuple[Floats, Bools]:
    """Where to start, and which parameters to fit: what was not measured stays optimistic."""
    start, free = np.array(START), np.ones(7, dtype=bool)
    if (local == local[0]).all():
        start[0], free[0] = float(grad_s.mean()) / 2.0, False
        start[1] = start[0] / float(local[0])
    else:
        slope, rest = np.polyfit(local, grad_s, 1)
        start[0], start[1] = max(rest, 0.01 * grad_s.min()), max(slope, 1e-3 * grad_s.min())
    apart, together = nodes > 1, (nodes == 1) & (replicas > 1)
    for regime, at in ((apart, 2), (together, 4)):
        if regime.any():
            waited = np.maximum(step_s - grad_s, 0.01 * step_s)[regime]
            start[at], start[at + 1] = float(waited.mean()), 0.02 * float(waited.mean())
    unseen = [2, 3] * (not apart.any()) + [4, 5] * (not together.any())
    unseen += [3, 5] * (not (replicas > 2).any())
    start[unseen], free[unseen] = TINY, False
    return start, free


class At(NamedTuple):
    """The loss at some parameters, and what Gauss-Newton needs: half its slope and curvature."""

    loss: float
    pull: Floats
    curve: Floats


class Problem:
    """The loss, with slopes by the logarithms of parameters (gamma as it is).

    Row by row in plain floats: a job has measured a few configurations, not thousands.
    """

    def __init__(
        self, nodes: Floats, replicas: Floats, local: Floats, log_grad: Floats, log_step: Floats
    ) -> None:
        regime = np.where(replicas == 1, ALONE, np.where(nodes > 1, APART, TOGETHER))
        extra = np.maximum(replicas - 2.0, TINY)
        columns = (local, regime, extra, log_grad, log_step)
        self.rows = tuple(zip(*(column.tolist() for column in columns), strict=True))

    def at(self, p: Floats) -> At:
        """Two sums of squares, each weighted by the root of its mean, and two light pulls."""
        known, g = p.tolist(), float(p[6])
        by_grad, by_step, off_grad, off_step = [], [], [], []
        for local, regime, extra, told_grad, told_step in self.rows:
            fixed, more = known[0], known[1] * local
            grad = fixed + more
            first, rest = (TINY, 0.0) if not regime else (known[regime], known[regime + 1] * extra)
            log_a, log_b = log(grad), log(first + rest)
            # Relative to the larger term, so that powers neither overflow nor vanish.
            top = max(log_a, log_b)
            a, b = exp(g * (log_a - top)), exp(g * (log_b - top))
            log_z = log(a + b) / g
            off_grad.append(log_a - told_grad)
            off_step.append(top + log_z - told_step)
            a, b = a / (a + b), b / (a + b)
            fixed, more = fixed / grad, more / grad
            by_grad.append([fixed, more, 0.0, 0.0, 0.0, 0.0, 0.0])
            slope = [a * fixed, a * more, 0.0, 0.0, 0.0, 0.0, 0.0]
            slope[6] = (a * (log_a - top) + b * (log_b - top) - log_z) / g
            if regime:
                share = b / (first + rest)
                slope[regime], slope[regime + 1] = share * first, share * rest
            by_step.append(slope)
        return _sum(known, (off_grad, off_step), (by_grad, by_step))


def _sum(p: list[float], off: tuple[list[float], ...], slopes: tuple[list[list[float]], ...]) -> At:
    """Errors of gradient and step times, a light pull of gamma to 1 and of slopes to 0."""
    over, apart, together = p[6] - 1.0, p[3] / p[2], p[5] / p[4]
    loss = GAMMA_PULL * over * over + SLOPE_PULL * (apart * apart + together * together)
    rows = [[0.0] * 6 + [1.0], *AGAINST]
    errors, weights = [over, apart, together], [GAMMA_PULL, SLOPE_PULL, SLOPE_PULL]
    rows[1], rows[2] = [apart * v for v in rows[1]], [together * v for v in rows[2]]
    for some, their in zip(off, slopes, strict=True):
        rmse = sqrt(sum(v * v for v in some) / len(some) + FLOOR * FLOOR)
        loss += rmse
        errors += some
        weights += [0.5 / (len(some) * rmse)] * len(some)
        rows += their
    by = np.array(rows)
    weighted = by.T * np.array(weights)
    return At(loss, weighted @ np.array(errors), weighted @ by)


def minimise(problem: Problem, start: Floats, free: Bools) -> Floats:
    """Levenberg-Marquardt with iteratively reweighted residuals, kept inside the bounds."""
    which = np.flatnonzero(free)
    square = np.ix_(which, which)
    p, damping = start.copy(), 1e-2
    now = problem.at(p)
    for _ in range(STEPS):
        curve = now.curve[square]
        diagonal = np.einsum("ii->i", curve)
        diagonal += damping * (diagonal + 1e-9)
        trial = _move(p, which, np.asarray(np.linalg.solve(curve, -now.pull[which])))
        after = problem.at(trial)
        if after.loss < now.loss:
            done = now.loss - after.loss < 3e-4 * now.loss
            p, now = trial, after
            damping = max(damping * 0.2, 1e-9)
            if done:
                break
        else:
            damping *= 8.0
            if damping > 1e6:
                break
    return p


def _move(p: Floats, which: NDArray[np.intp], step: Floats) -> Floats:
    whole = np.zeros(7)
    whole[which] = np.minimum(np.maximum(step, -3.0), 3.0)
    moved = np.maximum(p * np.exp(whole), TINY)
    moved[6] = min(max(p[6] + min(max(whole[6], -1.0), 1.0), GAMMA[0]), GAMMA[1])
    return moved
