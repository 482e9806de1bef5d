"""The fit of the authors' simulator: the same loss as ours, left as soon as it falls slowly.

Sia's simulator (SOSP 2023) stops L-BFGS-B when a step lowers the loss by less than 1e-5. Where
measurements contradict each other, as those of several kinds of GPUs do, that is well before the
best fit, and what it predicts then differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import sqrt

import numpy as np

from weft.base.step_fit import GAMMA, GAMMA_PULL, SLOPE_PULL, FitRow
from weft.base.step_times import TINY, StepTime
from weft.core.state.cells import Floats
from weft.solve.scipy_optimize import scipy_optimize

START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
TOLERANCE = 1e-5


def early_fit(rows: Iterable[FitRow]) -> StepTime:
    """The parameters where the authors' optimiser stops."""
    return _fit(tuple(rows))


@lru_cache(maxsize=65_536)
def _fit(rows: tuple[FitRow, ...]) -> StepTime:
    nodes, replicas, local, grad_s, _ = (
        np.array(column, dtype=float) for column in zip(*rows, strict=True)
    )
    start = np.array(START)
    low, high = np.array([TINY] * 6 + [GAMMA[0]]), np.array([np.inf] * 6 + [GAMMA[1]])
    if (local == local[0]).all():
        low[0] = high[0] = grad_s.mean() / 2.0
    unseen = [2, 3] * (not (nodes > 1).any())
    unseen += [4, 5] * (not ((nodes == 1) & (replicas > 1)).any())
    unseen += [3, 5] * (not (replicas > 2).any())
    high[unseen] = low[unseen]
    fitted = _minimise(FitLoss(rows), start, low, high)
    if not (nodes > 1).any():
        fitted[2:4] = np.maximum(fitted[2:4], 1.1 * fitted[4:6])
    return StepTime(*fitted.tolist())


def _minimise(loss: FitLoss, start: Floats, low: Floats, high: Floats) -> Floats:
    """Minimise with the authors' optimiser, which is SciPy's."""
    scipy = scipy_optimize()
    fitted: Floats = scipy.minimize(
        loss,
        np.clip(start, low, high),
        jac=True,
        method="L-BFGS-B",
        bounds=scipy.Bounds(low, high),
        tol=TOLERANCE,
    ).x
    return fitted


class FitLoss:
    """Pollux's loss of parameters, and its slopes."""

    def __init__(self, rows: Iterable[FitRow]) -> None:
        columns = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        nodes, replicas, self.local, grad_s, step_s = columns
        self.log_grad, self.log_step = np.log(grad_s), np.log(step_s)
        extra = np.maximum(replicas - 2.0, TINY)
        apart = nodes > 1
        together = ~apart & (replicas > 1)
        # What each parameter of T_sync adds to it, and what a job alone is taken to wait.
        self.sync = np.stack([apart, apart * extra, together, together * extra])
        self.alone = np.where(apart | together, 0.0, TINY + TINY * extra)

    def __call__(self, p: Floats) -> tuple[float, Floats]:
        """Two root mean square errors, a light pull of gamma to 1 and of the slopes to 0."""
        g = float(p[6])
        grad = p[0] + p[1] * self.local
        sync = p[2:6] @ self.sync + self.alone
        a, b = grad**g, sync**g
        both = a + b
        log_both, log_grad, log_sync = np.log(both), np.log(grad), np.log(sync)
        off_grad, by_grad = _rmse(log_grad - self.log_grad)
        off_step, by_step = _rmse(log_both / g - self.log_step)
        slopes = np.empty(7)
        to_grad = by_grad / grad + by_step * a / grad / both
        slopes[0], slopes[1] = to_grad.sum(), to_grad @ self.local
        slopes[2:6] = self.sync @ (by_step * b / sync / both)
        turn = (a * log_grad + b * log_sync) / (both * g) - log_both / (g * g)
        slopes[6] = by_step @ turn + 2.0 * GAMMA_PULL * (g - 1.0)
        loss = off_grad + off_step + GAMMA_PULL * (g - 1.0) ** 2
        for first in (2, 4):
            ratio = float(p[first + 1] / p[first])
            loss += SLOPE_PULL * ratio * ratio
            slopes[first] -= 2.0 * SLOPE_PULL * ratio * ratio / p[first]
            slopes[first + 1] += 2.0 * SLOPE_PULL * ratio / p[first]
        return float(loss), slopes


def _rmse(errors: Floats) -> tuple[float, Floats]:
    """The root mean square, and how it changes with each error; flat where there is none."""
    root = sqrt(float(errors @ errors) / len(errors))
    return root, errors / (len(errors) * root) if root else np.zeros(len(errors))
