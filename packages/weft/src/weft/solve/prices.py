"""Prices of GPUs of each kind at which the dual bound of a multiple-choice knapsack is low.

Newton steps on a soft maximum of falling temperature. A few steps of arithmetic are taken together,
so that they can be compiled; exponentials and matrices are numpy's in any case.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.native import compiled

Ints = NDArray[np.intp]
TEMPERATURES = (0.2, 0.05, 0.015, 0.005)
NEWTON_STEPS = 3


def lower_bound(value: Floats, kind: Ints, count: Floats, capacity: Floats) -> Floats:
    """Prices that make the bound low: Newton on a soft maximum that hardens."""
    finite = np.sort(np.abs(value[np.isfinite(value)]))
    scale = (float(finite[len(finite) // 2]) if len(finite) else 1.0) or 1.0
    start = scale / max(float(count.mean()), 1.0)
    steps = PriceSteps(value, kind, count, capacity)
    prices = np.full(len(capacity), start)
    best, lowest = prices, find_bound(value, kind, count, capacity, prices)
    for temperature in TEMPERATURES:
        for _ in range(NEWTON_STEPS):
            prices = steps.after(prices, temperature * scale)
        bound = find_bound(value, kind, count, capacity, prices)
        if bound < lowest:
            best, lowest = prices, bound
    return best


def find_bound(value: Floats, kind: Ints, count: Floats, capacity: Floats, prices: Floats) -> float:
    """The bound that prices prove."""
    return add_tops(value, kind, count, prices) + float(prices @ capacity)


class PriceSteps:
    """Damped steps towards demand = capacity under the soft maximum."""

    def __init__(self, value: Floats, kind: Ints, count: Floats, capacity: Floats) -> None:
        (jobs, sizes), kinds = value.shape, len(capacity)
        self._value, self._capacity = np.ascontiguousarray(value), np.ascontiguousarray(capacity)
        self._kind, self._count = np.ascontiguousarray(kind), np.ascontiguousarray(count)
        self._belongs = np.zeros((sizes, kinds))
        self._belongs[np.arange(sizes), kind] = count
        self._soft = np.empty((jobs, sizes + 1))
        self._weight, self._spread = np.empty((jobs, sizes)), np.empty((sizes, kinds))
        self._down = np.empty(kinds)

    def after(self, prices: Floats, t: float) -> Floats:
        """Prices after one step at temperature `t`."""
        soft, belongs, spread = self._soft, self._belongs, self._spread
        soften(self._value, self._kind, self._count, prices, t, soft)
        np.exp(soft, soft)
        weigh(soft, belongs, self._weight, spread)
        each = self._weight @ belongs
        curve = belongs.T @ spread
        bend(curve, each.T @ each, each, self._capacity, t, self._down)
        after = np.empty(len(prices))
        go(prices, np.linalg.solve(curve, self._down), t, after)
        return after


@compiled
def add_tops(value: Floats, kind: Ints, count: Floats, prices: Floats) -> float:
    """The sum of what their best sizes leave to jobs at given prices."""
    net = value - (prices[kind] * count)[None, :]
    return float(np.maximum(net.max(axis=1), 0.0).sum())


@compiled
def soften(
    value: Floats, kind: Ints, count: Floats, prices: Floats, t: float, soft: Floats
) -> None:
    """Into `soft`: how far each size, and last no size, is below the best of a job, over `t`."""
    net = value - prices[kind] * count
    net /= t
    top = np.maximum(np.maximum.reduce(net, axis=1, keepdims=True), 0.0)
    np.subtract(net, top, out=soft[:, :-1])
    np.negative(top, out=soft[:, -1:])


@compiled
def weigh(soft: Floats, belongs: Floats, weight: Floats, spread: Floats) -> None:
    """Into `weight`: each size's part of what is soft; into `spread`: all jobs', by kind."""
    weight[:] = soft[:, :-1]
    weight /= np.add.reduce(weight, axis=1, keepdims=True) + soft[:, -1:]
    np.multiply(np.add.reduce(weight, axis=0)[:, None], belongs, out=spread)


@compiled
def bend(
    curve: Floats, own: Floats, each: Floats, capacity: Floats, t: float, down: Floats
) -> None:
    """The curvature of the bound, in place, and into `down` its slope with the sign turned."""
    curve -= own
    curve /= t
    curve.flat[:: len(curve) + 1] += 1e-9 + 1e-6 * float(curve.trace())
    np.negative(capacity - np.add.reduce(each, axis=0), out=down)


@compiled
def go(prices: Floats, step: NDArray[np.floating[Any]], t: float, after: Floats) -> None:
    """Into `after`: prices after a step that changes none by too much, and none below 0."""
    limit = 0.5 * prices + t
    np.maximum(prices + np.minimum(np.maximum(step, -limit), limit), 0.0, out=after)
