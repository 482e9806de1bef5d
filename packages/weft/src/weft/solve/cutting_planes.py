"""The lowest point of a convex function of a few variables in a box, by cutting planes.

Every evaluation gives a plane below the function (Kelley 1960). The lowest point above all planes
so far is the next to evaluate, and a bound on what is left to gain. It is found by the dual
simplex method, which takes up a new plane in a pivot or two.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.core.state.cells import Floats
from weft.frozen import frozen

CLOSE = 1e-6  # of the value: as near to the lowest as this
EVALUATIONS = 60, 20  # at most that many, and that many more for each variable
PIVOTS = 60
LEAST_PIVOT = 1e-11

Evaluate = Callable[[Floats], tuple[float, Floats]]


@frozen
class Lowest:
    """The lowest point of the function, and its value there.

    `weights` are those of the evaluations, by number, whose slopes balance there; they add up to 1.
    """

    at: Floats
    value: float
    weights: dict[int, float]


def find_lowest(evaluate: Evaluate, highest: Floats, start: Floats) -> Lowest:
    """The lowest point between 0 and `highest`; `evaluate` gives a value and a slope."""
    variables = len(highest)
    at = np.minimum(np.maximum(start, 0.0), highest)
    lowest, where, planes = np.inf, at, _Planes(variables)
    most = EVALUATIONS[0] + EVALUATIONS[1] * variables
    for _ in range(most):
        value, slope = evaluate(at)
        if value < lowest:
            lowest, where = value, at
        rises = slope * highest
        parts, floor = planes.add(value - float(slope @ at), rises)
        if lowest - floor <= CLOSE * abs(lowest):
            break
        at = np.minimum(np.maximum(parts, 0.0), 1.0) * highest
    return Lowest(where, lowest, planes.weights())


class _Planes:
    """Planes below a function of variables from 0 to 1, and the lowest point above them all.

    Each row of `_rows` and `_least` says `row @ (variables, height) >= least`: first the sides of
    the box, then the planes. `_basis` are the rows that hold the lowest point.
    """

    def __init__(self, variables: int) -> None:
        sides = np.eye(variables, variables + 1)
        self._sides = 2 * variables
        self._rows: Floats = np.concatenate((sides, -sides))
        self._least: Floats = np.repeat((0.0, -1.0), variables)
        self._basis: list[int] = []
        self._inverse: Floats = np.eye(variables + 1)
        self._unit = 0.0

    def add(self, base: float, rises: Floats) -> tuple[Floats, float]:
        """Take up a plane; the lowest point above all of them, and its height."""
        self._unit = self._unit or max(abs(base), float(np.abs(rises).max(initial=0.0)), 1e-300)
        self._rows = np.concatenate((self._rows, [np.append(-rises / self._unit, 1.0)]))
        self._least = np.append(self._least, base / self._unit)
        if not self._basis:
            falls = rises < 0.0
            self._basis = [*(np.arange(len(rises)) + len(rises) * falls), self._sides]
        point = self._settle()
        return point[:-1], float(point[-1]) * self._unit

    def _settle(self) -> Floats:
        for _ in range(PIVOTS):
            self._inverse = np.asarray(np.linalg.inv(self._rows[self._basis]), dtype=float)
            point = self._inverse @ self._least[self._basis]
            over = self._rows @ point - self._least
            enters = int(over.argmin())
            if over[enters] >= -1e-12:
                break
            pivots = self._rows[enters] @ self._inverse
            usable = pivots > LEAST_PIVOT
            if not usable.any():
                break
            ratio = np.full(len(pivots), np.inf)
            ratio[usable] = self._inverse[-1][usable] / pivots[usable]
            self._basis[int(ratio.argmin())] = enters
        return point

    def weights(self) -> dict[int, float]:
        """Weight of each plane at the lowest point, by the number of its evaluation."""
        held = zip(self._basis, self._inverse[-1].tolist(), strict=True)
        return {int(row) - self._sides: w for row, w in held if row >= self._sides and w > 0.0}
