"""A step along a line that lowers a function enough, and flattens it.

Moré and Thuente, "Line search algorithms with guaranteed sufficient decrease", ACM Transactions on
Mathematical Software 20(3), 1994. Letters are the paper's: phi the function along the line, psi
phi less the decrease that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

ENOUGH = 1e-3  # of the decrease that the first slope promises
FLATTER = 0.9  # of the first slope may be left
NARROW = 0.1  # of the upper end: a bracket not worth searching
WIDEN = (1.1, 4.0)
TRIES = 20


@dataclass(frozen=True, slots=True)
class Point:
    """A step with the value and the slope of the function there."""

    at: float
    value: float
    slope: float


Along = Callable[[float], Point]


def step_along(phi: Along, first: Point, step: float, most: float) -> Point | None:
    """A step that will do, at most `most`; None if `TRIES` evaluations did not find one."""
    best = other = first
    bracketed, stage_one = False, True
    width, last_width = most, 2.0 * most
    low, high = 0.0, step + WIDEN[1] * step
    asked = ENOUGH * first.slope
    for _ in range(TRIES):
        new = phi(step)
        bar = first.value + step * asked
        if new.value <= bar and abs(new.slope) <= FLATTER * -first.slope:
            return new
        if _at_an_end(new, bar, asked, most) or (bracketed and _stuck(step, low, high)):
            return new
        stage_one = stage_one and not (new.value <= bar and new.slope >= 0.0)
        tilt = asked if stage_one and best.value >= new.value > bar else 0.0
        seen = (_less(best, tilt), _less(new, tilt), _less(other, tilt))
        step, bracketed, keep = _next(seen, bracketed, low, high)
        best, other = ((best, new, other)[which] for which in keep)
        if bracketed:
            if abs(other.at - best.at) >= 0.66 * last_width:
                step = best.at + 0.5 * (other.at - best.at)
            last_width, width = width, abs(other.at - best.at)
            low, high = sorted((best.at, other.at))
        else:
            low, high = (step + by * (step - best.at) for by in WIDEN)
        step = min(max(step, 0.0), most)
        if bracketed and _stuck(step, low, high):
            step = best.at
    return None


def _at_an_end(new: Point, bar: float, asked: float, most: float) -> bool:
    """As far as is allowed, and still falling."""
    return new.at >= most and new.value <= bar and new.slope <= asked


def _stuck(step: float, low: float, high: float) -> bool:
    return step <= low or step >= high or high - low <= NARROW * high


def _less(point: Point, tilt: float) -> Point:
    return Point(point.at, point.value - tilt * point.at, point.slope - tilt)


def _next(
    seen: tuple[Point, Point, Point], bracketed: bool, low: float, high: float
) -> tuple[float, bool, tuple[int, int]]:
    """The next step, whether a minimum is bracketed, and which are best and other from now on.

    Of those `seen`: best, new and other. The four cases of the paper's section 4.
    """
    best, new, other = seen
    apart = new.slope * best.slope < 0.0
    if new.value > best.value:
        cubic = _cubic(best, new, best)
        square = best.at + 0.5 * (new.at - best.at) * best.slope / (
            (best.value - new.value) / (new.at - best.at) + best.slope
        )
        near = abs(cubic - best.at) < abs(square - best.at)
        return (cubic if near else cubic + (square - cubic) / 2.0), True, (0, 1)
    if apart:
        cubic, secant = _cubic(best, new, new), _secant(best, new)
        far = abs(cubic - new.at) > abs(secant - new.at)
        return (cubic if far else secant), True, (1, 0)
    if abs(new.slope) < abs(best.slope):
        return _flatter(best, other, new, bracketed, low, high), bracketed, (1, 2)
    if bracketed:
        return _cubic(other, new, new), True, (1, 2)
    return (high if new.at > best.at else low), False, (1, 2)


def _flatter(
    best: Point, other: Point, new: Point, bracketed: bool, low: float, high: float
) -> float:
    """The slope falls but keeps its sign: the cubic may have its minimum the wrong way."""
    cubic, secant = _cubic_beyond(best, new, low, high), _secant(best, new)
    near = abs(cubic - new.at) < abs(secant - new.at)
    if not bracketed:
        return min(max(secant if near else cubic, low), high)
    step = cubic if near else secant
    bound = new.at + 0.66 * (other.at - new.at)
    return min(bound, step) if new.at > best.at else max(bound, step)


def _secant(best: Point, new: Point) -> float:
    return new.at + new.slope / (new.slope - best.slope) * (best.at - new.at)


def _terms(one: Point, two: Point) -> tuple[float, float, float]:
    theta = 3.0 * (one.value - two.value) / (two.at - one.at) + one.slope + two.slope
    s = max(abs(theta), abs(one.slope), abs(two.slope))
    under = (theta / s) ** 2 - (one.slope / s) * (two.slope / s)
    return theta, s, under


def _cubic(one: Point, two: Point, start: Point) -> float:
    """The minimum of the cubic through both, computed from `start`."""
    theta, s, under = _terms(one, two)
    end = one if start is two else two
    gamma = s * sqrt(max(under, 0.0))
    gamma = -gamma if end.at < start.at else gamma
    p = (gamma - start.slope) + theta
    q = ((gamma - start.slope) + gamma) + end.slope
    return start.at + p / q * (end.at - start.at)


def _cubic_beyond(best: Point, new: Point, low: float, high: float) -> float:
    """The same beyond `new`, if the cubic has a minimum there, else the end of the range."""
    theta, s, under = _terms(best, new)
    gamma = s * sqrt(max(under, 0.0))
    gamma = -gamma if new.at > best.at else gamma
    p = (gamma - new.slope) + theta
    q = (gamma + (best.slope - new.slope)) + gamma
    ratio = p / q if q else 0.0
    if ratio < 0.0 and gamma != 0.0:
        return new.at + ratio * (best.at - new.at)
    return high if new.at > best.at else low
