"""Fit the step-time model to what a job measured of itself.

The loss is Pollux's: root mean square errors of the logarithms of gradient and step times, with
a light pull of gamma to 1 and of the slopes to 0. Regimes a job has not run in yet are left
optimistic, so that a scheduler dares to try them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.perf.goodput import TINY, Floats, StepTime

Bools = NDArray[np.bool_]

START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.2)
GAMMA = (1.0, 10.0)
FLOOR = 1e-4  # errors below are as good as none
STEPS = 60


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
    found = minimise(Problem(nodes, replicas, local, np.log(grad_s), np.log(step_s)), start, free)
    if not (nodes > 1).any():
        found[2] = max(found[2], 1.1 * found[4])
        found[3] = max(found[3], 1.1 * found[5])
    return StepTime(*found.tolist())


def _start(
    nodes: Floats, replicas: Floats, local: Floats, grad_s: Floats, step_s: Floats
) -> tuple[Floats, Bools]:
    """Where to start, and which parameters to fit: what nothing tells of stays optimistic."""
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


class Problem:
    """The loss, and residuals with slopes for Gauss-Newton steps on logarithms of parameters."""

    def __init__(
        self, nodes: Floats, replicas: Floats, local: Floats, log_grad: Floats, log_step: Floats
    ) -> None:
        self.rows = len(local)
        self.grad_by = np.stack([np.ones_like(local), local])
        self.told = np.concatenate([log_grad, log_step])
        extra = np.maximum(replicas - 2.0, TINY)
        apart, alone = nodes > 1, replicas == 1
        together = ~apart & ~alone
        # Derivatives of T_sync by alpha_n, beta_n, alpha_r, beta_r; it is linear in them.
        self.sync_by = np.stack([apart * 1.0, apart * extra, together * 1.0, together * extra])
        self.alone = alone * TINY

    def at(self, p: Floats) -> tuple[float, Floats, Floats]:
        """Loss, weighted residuals, and their slopes by log parameters (gamma as it is)."""
        n, g = self.rows, p[6]
        grad_parts = p[:2, None] * self.grad_by
        sync_parts = p[2:6, None] * self.sync_by
        grad = grad_parts.sum(axis=0)
        sync = np.maximum(sync_parts.sum(axis=0) + self.alone, TINY)
        log_a, log_b = np.log(grad), np.log(sync)
        # Relative to the larger term, so that powers neither overflow nor vanish.
        top = np.maximum(log_a, log_b)
        a, b = np.exp(g * (log_a - top)), np.exp(g * (log_b - top))
        z = a + b
        log_z = np.log(z)
        off = np.concatenate([log_a, top + log_z / g]) - self.told
        slopes = np.zeros((2 * n + 3, 7))
        slopes[:n, :2] = (grad_parts / grad).T
        slopes[n : 2 * n, :2] = (grad_parts * (a / (z * grad))).T
        slopes[n : 2 * n, 2:6] = (sync_parts * (b / (z * sync))).T
        mixed = (a * (log_a - top) + b * (log_b - top)) / z
        slopes[n : 2 * n, 6] = mixed / g - log_z / (g * g)
        spread = np.array([off[:n] @ off[:n], off[n:] @ off[n:]]) / n
        rmse = np.sqrt(spread + FLOOR * FLOOR)
        weight = np.repeat(1.0 / np.sqrt(2.0 * n * rmse), n)
        rn, rr = 0.1 * p[3] / p[2], 0.1 * p[5] / p[4]
        rest = np.array([0.03162277660168379 * (g - 1.0), rn, rr])
        slopes[: 2 * n] *= weight[:, None]
        slopes[2 * n, 6] = 0.03162277660168379
        slopes[2 * n + 1, 2:4] = -rn, rn
        slopes[2 * n + 2, 4:6] = -rr, rr
        loss = float(rmse.sum() + rest @ rest)
        return loss, np.concatenate([weight * off, rest]), slopes


def minimise(problem: Problem, start: Floats, free: Bools) -> Floats:
    """Levenberg-Marquardt with iteratively reweighted residuals, kept inside the bounds."""
    which = np.flatnonzero(free)
    p, damping = start.copy(), 1e-2
    loss, off, slopes = problem.at(p)
    for _ in range(STEPS):
        j = slopes[:, which]
        pull, curve = j.T @ off, j.T @ j
        diagonal = np.einsum("ii->i", curve)
        diagonal += damping * (diagonal + 1e-9)
        trial = _moved(p, which, np.asarray(np.linalg.solve(curve, -pull)))
        after = problem.at(trial)
        if after[0] < loss:
            done = loss - after[0] < 3e-4 * loss
            p, (loss, off, slopes) = trial, after
            damping = max(damping * 0.2, 1e-9)
            if done:
                break
        else:
            damping *= 8.0
            if damping > 1e6:
                break
    return p


def _moved(p: Floats, which: NDArray[np.intp], step: Floats) -> Floats:
    whole = np.zeros(7)
    whole[which] = np.minimum(np.maximum(step, -3.0), 3.0)
    moved = np.maximum(p * np.exp(whole), TINY)
    moved[6] = min(max(p[6] + min(max(whole[6], -1.0), 1.0), GAMMA[0]), GAMMA[1])
    return moved
