"""Fit the step-time model to what a job measured about itself.

The loss is Pollux's: root mean square errors of the logarithms of gradient and step times, with
a light pull of gamma to 1 and of the slopes to 0. Regimes a job has not run in yet are left
optimistic, so that a scheduler dares to try them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import exp, log, sqrt
from struct import pack
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

    Row by row in plain floats: a job has measured a few configurations, not thousands. What rows
    share, those with equal batches on a GPU and those with equal waits, is worked out once.
    """

    def __init__(
        self, nodes: Floats, replicas: Floats, local: Floats, log_grad: Floats, log_step: Floats
    ) -> None:
        regime = np.where(replicas == 1, ALONE, np.where(nodes > 1, APART, TOGETHER))
        extra = np.maximum(replicas - 2.0, TINY)
        self.log_grad, self.log_step = log_grad.tolist(), log_step.tolist()
        waits = [*zip(regime.tolist(), extra.tolist(), strict=True)]
        self.locals, self.waits = [*dict.fromkeys(local.tolist())], [*dict.fromkeys(waits)]
        of_local = {value: at for at, value in enumerate(self.locals)}
        of_wait = {value: at for at, value in enumerate(self.waits)}
        places = ([of_local[v] for v in local.tolist()], [of_wait[v] for v in waits])
        self.rows = [*zip(*places, self.log_grad, self.log_step, strict=True)]

    def at(self, p: list[float]) -> At:
        """Two sums of squares, each weighted by the root of its mean, and two light pulls."""
        g = p[6]
        grads = [_gradient(p[0], p[1] * local) for local in self.locals]
        waits = [_wait(p, regime, extra) for regime, extra in self.waits]
        by_grad: list[float] = []
        by_step: list[float] = []
        off_grad, off_step = [], []
        for of_local, of_wait, told_grad, told_step in self.rows:
            log_a, fixed, more = grads[of_local]
            log_b, regime, first, rest, wait = waits[of_wait]
            # Relative to the larger term, so that powers neither overflow nor vanish.
            if log_a >= log_b:
                a, b, top, over_a, over_b = 1.0, exp(g * (log_b - log_a)), log_a, 0.0, log_b - log_a
            else:
                a, b, top, over_a, over_b = exp(g * (log_a - log_b)), 1.0, log_b, log_a - log_b, 0.0
            both = a + b
            log_z = log(both) / g
            off_grad.append(log_a - told_grad)
            off_step.append(top + log_z - told_step)
            a, b = a / both, b / both
            by_grad += (fixed, more, 0.0, 0.0, 0.0, 0.0, 0.0)
            turn = (a * over_a + b * over_b - log_z) / g
            if not regime:
                by_step += (a * fixed, a * more, 0.0, 0.0, 0.0, 0.0, turn)
                continue
            share = b / wait
            if regime == APART:
                by_step += (a * fixed, a * more, share * first, share * rest, 0.0, 0.0, turn)
            else:
                by_step += (a * fixed, a * more, 0.0, 0.0, share * first, share * rest, turn)
        return _sum(p, (off_grad, off_step), by_grad + by_step)


def _gradient(fixed: float, more: float) -> tuple[float, float, float]:
    """The logarithm of the seconds of a gradient, and the parts of both terms in them."""
    grad = fixed + more
    return log(grad), fixed / grad, more / grad


def _wait(p: list[float], regime: int, extra: float) -> tuple[float, int, float, float, float]:
    """The logarithm of the seconds of a synchronisation, in which regime, and both terms."""
    first, rest = (TINY, 0.0) if not regime else (p[regime], p[regime + 1] * extra)
    wait = first + rest
    return log(wait), regime, first, rest, wait


def _sum(p: list[float], off: tuple[list[float], list[float]], slopes: list[float]) -> At:
    """Errors of gradient and step times, a light pull of gamma to 1 and of slopes to 0."""
    over, apart, together = p[6] - 1.0, p[3] / p[2], p[5] / p[4]
    loss = GAMMA_PULL * over * over + SLOPE_PULL * (apart * apart + together * together)
    rows = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    rows += (0.0, 0.0, -apart, apart, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -together, together, 0.0)
    errors, weights = [over, apart, together], [GAMMA_PULL, SLOPE_PULL, SLOPE_PULL]
    for some in off:
        rmse = sqrt(sum([v * v for v in some]) / len(some) + FLOOR * FLOOR)
        loss += rmse
        errors += some
        weights += [0.5 / (len(some) * rmse)] * len(some)
    rows += slopes
    by = np.frombuffer(pack(f"{len(rows)}d", *rows)).reshape(-1, 7)  # quicker than of a list
    weighted = by.T * np.array(weights)
    return At(loss, weighted @ np.array(errors), weighted @ by)


def minimise(problem: Problem, start: Floats, free: Bools) -> Floats:
    """Levenberg-Marquardt with iteratively reweighted residuals, kept inside the bounds."""
    which = np.flatnonzero(free)
    square = (7 * which[:, None] + which).ravel()
    p, damping = start.copy(), 1e-2
    now = problem.at(p.tolist())
    for _ in range(STEPS):
        curve = now.curve.take(square)
        diagonal = curve[:: len(which) + 1]
        diagonal += damping * (diagonal + 1e-9)
        down = -now.pull.take(which)
        step = np.linalg.solve(curve.reshape(len(which), -1), down)
        trial = _move(p, which, np.asarray(step))
        after = problem.at(trial.tolist())
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
