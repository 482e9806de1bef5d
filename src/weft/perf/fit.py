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

from weft.perf.goodput import TINY, Floats, StepTime

START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
GAMMA = (1.0, 10.0)


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
    nodes, replicas, local, grad_s, step_s = (
        np.array(c, dtype=float) for c in zip(*rows, strict=True)
    )
    low, high, start = _bounds(nodes, replicas, local, grad_s)
    problem = Problem(nodes, replicas, local, np.log(grad_s), np.log(step_s))
    found = minimise(problem, start, low, high)
    if not (nodes > 1).any():
        found[2] = max(found[2], 1.1 * found[4])
        found[3] = max(found[3], 1.1 * found[5])
    return StepTime(*(float(x) for x in found))


def _bounds(
    nodes: Floats, replicas: Floats, local: Floats, grad_s: Floats
) -> tuple[Floats, Floats, Floats]:
    """Bounds and start; a parameter nothing tells of is fixed at its optimistic bound."""
    low, high = np.full(7, TINY), np.full(7, np.inf)
    low[6], high[6] = GAMMA
    start = np.array(START)
    if len(set(local.tolist())) == 1:
        low[0] = high[0] = start[0] = float(grad_s.mean()) / 2.0
    fixed = []
    if not (nodes > 1).any():
        fixed += [2, 3]
    if not ((nodes == 1) & (replicas > 1)).any():
        fixed += [4, 5]
    if not (replicas > 2).any():
        fixed += [3, 5]
    for i in fixed:
        low[i] = high[i] = start[i] = TINY
    return low, high, start


class Problem:
    """The loss and its gradient at given parameters."""

    def __init__(
        self, nodes: Floats, replicas: Floats, local: Floats, log_grad: Floats, log_step: Floats
    ) -> None:
        self.local = local
        self.log_grad, self.log_step = log_grad, log_step
        extra = np.maximum(replicas - 2.0, TINY)
        apart, alone = nodes > 1, replicas == 1
        together = ~apart & ~alone
        # Derivatives of T_sync by alpha_n, beta_n, alpha_r, beta_r; it is linear in them.
        self.sync_by = np.stack([apart * 1.0, apart * extra, together * 1.0, together * extra])
        self.alone = alone * TINY

    def __call__(self, p: Floats) -> tuple[float, Floats]:
        """Loss and gradient."""
        g = p[6]
        grad = p[0] + p[1] * self.local
        sync = np.maximum(p[2:6] @ self.sync_by + self.alone, TINY)
        log_a, log_b = np.log(grad), np.log(sync)
        a, b = np.exp(g * log_a), np.exp(g * log_b)
        z = a + b
        log_z = np.log(z)
        err_grad = log_a - self.log_grad
        err_step = log_z / g - self.log_step
        n = len(err_grad)
        rmse_grad = np.sqrt(err_grad @ err_grad / n)
        rmse_step = np.sqrt(err_step @ err_step / n)
        rn, rr = p[3] / p[2], p[5] / p[4]
        loss = rmse_grad + rmse_step + 1e-3 * (g - 1.0) ** 2 + 1e-2 * (rn * rn + rr * rr)
        w_grad = err_grad / (n * rmse_grad) if rmse_grad > 0 else np.zeros(n)
        w_step = err_step / (n * rmse_step) if rmse_step > 0 else np.zeros(n)
        by_grad = w_grad / grad + w_step * a / (z * grad)
        by_sync = w_step * b / (z * sync)
        slope = np.empty(7)
        slope[0], slope[1] = by_grad.sum(), by_grad @ self.local
        slope[2:6] = self.sync_by @ by_sync
        slope[6] = w_step @ ((a * log_a + b * log_b) / (z * g) - log_z / (g * g)) + 2e-3 * (g - 1.0)
        slope[2] -= 2e-2 * rn * rn / p[2]
        slope[3] += 2e-2 * rn / p[2]
        slope[4] -= 2e-2 * rr * rr / p[4]
        slope[5] += 2e-2 * rr / p[4]
        return float(loss), slope


def minimise(problem: Problem, start: Floats, low: Floats, high: Floats) -> Floats:
    from scipy.optimize import minimize

    best = minimize(
        problem, start, jac=True, bounds=list(zip(low, high)), method="L-BFGS-B", tol=1e-5
    )
    return np.asarray(best.x)
