"""Fit the step-time model to what a job measured about itself.

The loss is Pollux's: root mean square errors of the logarithms of gradient and step times, with
a light pull of gamma to 1 and of the slopes to 0. Regimes a job has not run in yet are left
optimistic, so that a scheduler dares to try them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log, sqrt
from typing import NamedTuple

from .step_times import TINY

START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.2)
GAMMA = (1.0, 10.0)
FLOOR = 1e-4  # errors below are as good as none
LEAST_S = 1e-12  # no time is shorter
STEPS = 60
GAMMA_PULL, SLOPE_PULL = 1e-3, 1e-2
ALONE, APART, TOGETHER = 0, 2, 4  # where the parameters of T_sync in a regime are


Slopes = tuple[tuple[int, float], ...]  # by which parameter, and how steep; others are 0


class FitRow(NamedTuple):
    """One measured configuration: nodes, replicas, samples per GPU; gradient and step seconds."""

    nodes: int
    replicas: int
    local: int
    grad_s: float
    step_s: float


def fit_rows(rows: tuple[FitRow, ...]) -> list[float]:
    """The seven parameters of `StepTime` that explain sorted rows best.

    Sums are taken in the order of rows, and equations solved by hand: products of matrices differ
    from machine to machine, and what is compiled would differ from them.
    """
    table = [[*map(float, row[:3]), *(max(float(s), LEAST_S) for s in row[3:])] for row in rows]
    start, free = _start(table)
    fitted = minimise(FitProblem(table), start, free)
    if not any(row[0] > 1.0 for row in table):
        fitted[2] = max(fitted[2], 1.1 * fitted[4])
        fitted[3] = max(fitted[3], 1.1 * fitted[5])
    return fitted


def _start(rows: list[list[float]]) -> tuple[list[float], list[int]]:
    """Return first parameters and those to leave alone: what was not measured stays optimistic."""
    start, fixed = [*START], set[int]()
    _, replicas, local, grad_s, _ = zip(*rows, strict=True)
    if all(size == local[0] for size in local):
        start[0] = _mean(grad_s) / 2.0
        start[1] = start[0] / local[0]
        fixed.add(0)
    else:
        slope, rest = _line(local, grad_s)
        start[0] = max(rest, 0.01 * min(grad_s))
        start[1] = max(slope, 1e-3 * min(grad_s))
    apart = [row for row in rows if row[0] > 1.0]
    together = [row for row in rows if row[0] == 1.0 and row[1] > 1.0]
    for at, inside in ((APART, apart), (TOGETHER, together)):
        if inside:
            waited = _mean([max(step - grad, 0.01 * step) for _, _, _, grad, step in inside])
            start[at], start[at + 1] = waited, 0.02 * waited
        else:
            fixed |= {at, at + 1}
    if not any(count > 2.0 for count in replicas):
        fixed |= {3, 5}
    for at in fixed - {0}:
        start[at] = TINY
    return start, [at for at in range(7) if at not in fixed]


def _mean(values: Iterable[float]) -> float:
    total, count = 0.0, 0
    for value in values:
        total += value
        count += 1
    return total / count


def _line(x: Iterable[float], y: Iterable[float]) -> tuple[float, float]:
    """Slope and intercept of the line nearest to points, not all of them at one `x`."""
    middle, height, above, below = _mean(x), _mean(y), 0.0, 0.0
    for at, value in zip(x, y, strict=True):
        above += (at - middle) * (value - height)
        below += (at - middle) * (at - middle)
    return above / below, height - above / below * middle


class At(NamedTuple):
    """The loss at some parameters, and what Gauss-Newton needs: half its slope and curvature."""

    loss: float
    pull: list[float]
    curve: list[list[float]]


class FitProblem:
    """The loss, with slopes by the logarithms of parameters (gamma as it is).

    Row by row in plain floats: a job has measured a few configurations, not thousands. What rows
    share, those with equal batches on a GPU and those with equal waits, is worked out once.
    """

    def __init__(self, rows: Iterable[Iterable[float]]) -> None:
        nodes, replicas, local, grad_s, step_s = zip(*rows, strict=True)
        waits = [_regime(*pair) for pair in zip(nodes, replicas, strict=True)]
        self.locals, self.waits = [*dict.fromkeys(local)], [*dict.fromkeys(waits)]
        of_local = {value: at for at, value in enumerate(self.locals)}
        of_wait = {value: at for at, value in enumerate(self.waits)}
        places = ([of_local[v] for v in local], [of_wait[v] for v in waits])
        self.rows = [*zip(*places, map(log, grad_s), map(log, step_s), strict=True)]

    def at(self, p: list[float]) -> At:
        """Two sums of squares, each weighted by the root of its mean, and two light pulls."""
        g = p[6]
        grads = [_gradient(p[0], p[1] * local) for local in self.locals]
        waits = [_wait(p, regime, extra) for regime, extra in self.waits]
        by_grad: list[Slopes] = []
        by_step: list[Slopes] = []
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
            by_grad.append(((0, fixed), (1, more)))
            turn = (a * over_a + b * over_b - log_z) / g
            slopes: Slopes = ((0, a * fixed), (1, a * more), (6, turn))
            if regime:
                share = b / wait
                slopes += ((regime, share * first), (regime + 1, share * rest))
            by_step.append(slopes)
        return _sum(p, (off_grad, off_step), by_grad + by_step)


def _regime(nodes: float, replicas: float) -> tuple[int, float]:
    """Return the index of a synchronisation's parameters, and the factor of the slope."""
    regime = ALONE if replicas == 1.0 else APART if nodes > 1.0 else TOGETHER
    return regime, max(replicas - 2.0, TINY)


def _gradient(fixed: float, more: float) -> tuple[float, float, float]:
    """The logarithm of the seconds of a gradient, and the parts of both terms in them."""
    grad = fixed + more
    return log(grad), fixed / grad, more / grad


def _wait(p: list[float], regime: int, extra: float) -> tuple[float, int, float, float, float]:
    """The logarithm of the seconds of a synchronisation, in which regime, and both terms."""
    first, rest = (TINY, 0.0) if not regime else (p[regime], p[regime + 1] * extra)
    wait = first + rest
    return log(wait), regime, first, rest, wait


def _sum(p: list[float], off: tuple[list[float], list[float]], slopes: list[Slopes]) -> At:
    """Errors of gradient and step times, a light pull of gamma to 1 and of slopes to 0."""
    over, apart, together = p[6] - 1.0, p[3] / p[2], p[5] / p[4]
    loss = GAMMA_PULL * over * over + SLOPE_PULL * (apart * apart + together * together)
    rows: list[Slopes] = [((6, 1.0),), ((2, -apart), (3, apart)), ((4, -together), (5, together))]
    errors, weights = [over, apart, together], [GAMMA_PULL, SLOPE_PULL, SLOPE_PULL]
    for some in off:
        squares = 0.0
        for error in some:
            squares += error * error
        rmse = sqrt(squares / len(some) + FLOOR * FLOOR)
        loss += rmse
        errors += some
        weights += [0.5 / (len(some) * rmse)] * len(some)
    pull, curve = [0.0] * 7, [[0.0] * 7 for _ in range(7)]
    for row, error, weight in zip(rows + slopes, errors, weights, strict=True):
        for at, slope in row:
            weighted = slope * weight
            pull[at] += weighted * error
            line = curve[at]
            for other, by in row:
                line[other] += weighted * by
    return At(loss, pull, curve)


def minimise(problem: FitProblem, start: list[float], which: list[int]) -> list[float]:
    """Levenberg-Marquardt with iteratively reweighted residuals, kept inside the bounds."""
    p, damping = start, 1e-2
    now = problem.at(p)
    for _ in range(STEPS):
        curve = [[now.curve[i][j] for j in which] for i in which]
        for i, row in enumerate(curve):
            row[i] += damping * (row[i] + 1e-9)
        step = _solve(curve, [-now.pull[i] for i in which])
        if step is None:
            break
        trial = _move(p, which, step)
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


def _solve(a: list[list[float]], b: list[float]) -> list[float] | None:
    """Linear equations by elimination, the largest first; None where there is no one answer."""
    count = len(b)
    for i in range(count):
        top = max(range(i, count), key=lambda row: abs(a[row][i]))
        if a[top][i] == 0.0:
            return None
        a[i], a[top], b[i], b[top] = a[top], a[i], b[top], b[i]
        for row in range(i + 1, count):
            factor = a[row][i] / a[i][i]
            for column in range(i + 1, count):
                a[row][column] -= factor * a[i][column]
            b[row] -= factor * b[i]
    for i in reversed(range(count)):
        for column in range(i + 1, count):
            b[i] -= a[i][column] * b[column]
        b[i] /= a[i][i]
    return b


def _move(p: list[float], which: list[int], step: list[float]) -> list[float]:
    whole = [0.0] * 7
    for at, by in zip(which, step, strict=True):
        whole[at] = min(max(by, -3.0), 3.0)
    moved = [max(value * exp(by), TINY) for value, by in zip(p, whole, strict=True)]
    moved[6] = min(max(p[6] + min(max(whole[6], -1.0), 1.0), GAMMA[0]), GAMMA[1])
    return moved
