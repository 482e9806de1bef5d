"""Minimise a smooth function of a few bounded variables, and stop as soon as it falls slowly.

Byrd, Lu, Nocedal and Zhu, "A limited memory algorithm for bound constrained optimization", SIAM
Journal on Scientific Computing 16(5), 1995, with the subspace step of Morales and Nocedal, ACM
Transactions on Mathematical Software 38(1), 2011. For a handful of variables the matrix is kept
whole, and made anew from the last steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weft.core.table import Bools, Floats
from weft.perf.goodput.line_search import Point, step_along

KEPT = 10  # last steps that the curvature is made of
ITERATIONS = 15_000
FAR = 1e10
EPSILON = float(np.finfo(float).eps)

Value = Callable[[Floats], tuple[float, Floats]]


class Box(NamedTuple):
    """Lower and upper bounds, infinite where there are none."""

    low: Floats
    high: Floats


class At(NamedTuple):
    """A point with the value and the slopes of the function there."""

    x: Floats
    value: float
    slope: Floats


def minimise(function: Value, start: Floats, box: Box, tolerance: float) -> Floats:
    """Where no slope, or no gain of the last step, is above `tolerance`."""
    x = np.clip(start, *box)
    now = At(x, *function(x))
    steps: list[tuple[Floats, Floats]] = []
    for iteration in range(ITERATIONS):
        if _steepest(now, box) <= tolerance:
            break
        curve = _curvature(steps, len(x))
        target = _subspace(now, box, curve, *_cauchy(now, box, curve), known=bool(steps))
        after = _line(function, now, target - now.x, box, first=not iteration)
        if after is None:
            if not steps:
                break
            steps = []
            continue
        gained, scale = now.value - after.value, max(abs(now.value), abs(after.value), 1.0)
        moved, turned = after.x - now.x, after.slope - now.slope
        fell = -float(now.slope @ moved)
        now = after
        if gained <= tolerance * scale:
            break
        if moved @ turned > EPSILON * fell:
            steps = [*steps, (moved, turned)][-KEPT:]
    return now.x


def _steepest(now: At, box: Box) -> float:
    """The largest slope along which the bounds leave room to go."""
    room = np.where(now.slope < 0, now.x - box.high, now.x - box.low)
    kept = np.where(now.slope < 0, np.maximum(room, now.slope), np.minimum(room, now.slope))
    return float(np.abs(kept).max())


def _curvature(steps: list[tuple[Floats, Floats]], size: int) -> Floats:
    """The matrix that explains how slopes turned along the last steps."""
    if not steps:
        return np.eye(size)
    moved, turned = steps[-1]
    curve = np.eye(size) * float(turned @ turned) / float(moved @ turned)
    for moved, turned in steps:
        along = curve @ moved
        curve = curve - np.outer(along, along) / (moved @ along)
        curve += np.outer(turned, turned) / (moved @ turned)
    return curve


def _cauchy(now: At, box: Box, curve: Floats) -> tuple[Floats, Bools]:
    """The first minimum of the quadratic model down the slope, bent at the bounds; who is free."""
    slope = now.slope
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(slope < 0, (now.x - box.high) / slope, (now.x - box.low) / slope)
    ends = np.where(slope == 0.0, np.inf, room)
    free = ends > 0.0
    along = np.where(free, -slope, 0.0)
    point, passed = now.x.copy(), 0.0
    for index in np.argsort(ends, kind="stable"):
        if not free[index]:
            continue
        fall = float(slope @ along + along @ curve @ (point - now.x))
        bend = float(along @ curve @ along)
        best = -fall / bend if bend > 0.0 else 0.0
        if not along.any() or best < ends[index] - passed:
            return point + max(best, 0.0) * along, free
        point = point + (ends[index] - passed) * along
        passed = float(ends[index])
        point[index] = box.high[index] if along[index] > 0.0 else box.low[index]
        along[index], free[index] = 0.0, False
    return point, free


def _subspace(
    now: At, box: Box, curve: Floats, point: Floats, free: Bools, *, known: bool
) -> Floats:
    """The minimum of the model over the free variables, brought back inside the bounds."""
    which = np.flatnonzero(free)
    if not len(which) or not known:
        return point
    left = -(now.slope + curve @ (point - now.x))[which]
    step = np.zeros(len(point))
    step[which] = np.linalg.solve(curve[np.ix_(which, which)], left)
    found = np.clip(point + step, *box)
    if (found == point + step).all() or (found - now.x) @ now.slope <= 0.0:
        return found
    return _as_far_as_allowed(point, step, box)


def _as_far_as_allowed(point: Floats, step: Floats, box: Box) -> Floats:
    room = np.where(step < 0, box.low - point, box.high - point)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(step == 0.0, np.inf, room / step)
    return np.clip(point + min(max(float(part.min()), 0.0), 1.0) * step, *box)


def _line(function: Value, now: At, along: Floats, box: Box, *, first: bool) -> At | None:
    """The end of a step along a line, or None where the function does not fall."""
    slope = float(now.slope @ along)
    if slope >= 0.0:
        return None
    seen: dict[float, At] = {}

    def phi(step: float) -> Point:
        x = np.clip(now.x + step * along, *box)
        seen[step] = at = At(x, *function(x))
        return Point(step, at.value, float(at.slope @ along))

    length = float(np.linalg.norm(along))
    most = 1.0 if first else _most(now.x, along, box)
    start = min(1.0 / length, most) if first else min(1.0, most)
    found = step_along(phi, Point(0.0, now.value, slope), start, most)
    return None if found is None else seen[found.at]


def _most(x: Floats, along: Floats, box: Box) -> float:
    room = np.where(along < 0, box.low - x, box.high - x)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(along == 0.0, np.inf, room / along)
    return float(min(max(part.min(), 0.0), FAR))
