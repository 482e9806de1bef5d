"""Prices of GPUs over time, at which jobs choose their own sizes: a bound for elastic jobs.

Each job pays as little as it can for its completion time and the GPUs that it rents, at any of its
sizes in each moment. Any prices give a bound; these are raised where more is asked for than there
is, and lowered elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.bounds.machine import BusyDual
from weft.frozen import frozen

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
CELLS = 96  # stretches of time with prices of their own
FEWEST, ROUNDS = 10, 80  # times that prices change: more for more jobs
EFFORT = 4e6  # numbers looked at for each of the values needed
HALVINGS, SECANTS = 30, 3
STEP = 1.0  # of the logarithm of a price in the first round
LEAST_PRICE = 0.1  # to begin with, of all GPUs, in seconds that jobs end later per second


@frozen
class Choices:
    """The choices of all jobs: those choices of a job next to each other, in order of the jobs.

    A choice takes `takes` of each resource, of which there is 1, and makes `speed` of the progress
    that its job makes where it is fastest.
    """

    takes: Floats
    speed: Floats
    job: NDArray[np.intp]

    @property
    def first(self) -> NDArray[np.intp]:
        """The first choice of each job."""
        return np.flatnonzero(np.diff(self.job, prepend=-1))


class Market:
    """Jobs that rent what they choose from, at prices by resource and stretch of time.

    `least` is what their times from release to end are at least; `dual` has prices to begin with.
    """

    def __init__(
        self, released: Floats, length: Floats, least: Floats, choices: Choices, dual: BusyDual
    ) -> None:
        self._released, self._length = released, np.maximum(length, 1e-9)
        self._least, self._choices, self._first = least, choices, choices.first
        self._worth = 1.0 / self._length  # of a second of progress, a second earlier
        self._begin, self._until, self.prices = _start_from(dual, released, choices.takes.shape[1])

    def least_sum(self) -> float:
        """The best bound found on the sum of times from release to end."""
        size = 2.0 * len(self._choices.speed) * len(self._begin)
        rounds = int(min(ROUNDS, FEWEST + len(self._length), EFFORT / size))
        best, prices = -np.inf, self.prices
        ends = self._best_ends(prices)
        for number in range(rounds + 1):
            ends = self._better_ends(prices, ends)
            paid, asked = self._pay(prices, ends)
            rent = float((prices * (self._until - self._begin)).sum())
            took = paid + self._length / 2.0 - self._released
            least = float(np.maximum(took, self._least).sum()) - rent
            best = max(best, least)
            over = np.clip(asked / np.maximum(self._until - self._begin, 1e-12) - 1.0, -1.0, 2.0)
            prices = prices * np.exp(STEP / np.sqrt(1.0 + number / 4.0) * over)
        return best

    def _best_ends(self, prices: Floats) -> Floats:
        """Times after which a job rents nothing, about those that make it pay most."""
        low, high = self._released.copy(), np.maximum(self._until[-1], self._released)
        high = high + 2.0 * self._length
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            early = self._rented(prices, middle) < self._length
            low, high = np.where(early, middle, low), np.where(early, high, middle)
        return np.asarray((low + high) / 2.0)

    def _better_ends(self, prices: Floats, ends: Floats) -> Floats:
        """The same, from those at other prices, a few steps by the secant."""
        rented, slope = self._rented(prices, ends), np.ones(len(ends))
        for _ in range(SECANTS):
            missing = self._length - rented
            last, ends = ends, np.maximum(ends + missing / slope, self._released)
            before, rented = rented, self._rented(prices, ends)
            moved = np.abs(ends - last) > 1e-9
            steeper = np.abs(rented - before) / np.where(moved, np.abs(ends - last), 1.0)
            slope = np.where(moved, np.clip(steeper, 0.5, 20.0), slope)
        return ends

    def _rented(self, prices: Floats, ends: Floats) -> Floats:
        """Seconds of progress that each job would rent, if progress were worth `ends` less now."""
        made = np.maximum(ends - np.maximum(self._until[-1], self._released), 0.0)
        _, wide, first, last = self._find_gains(prices, ends)
        for on in (first, last):
            rate = np.maximum.reduceat(on * self._choices.speed[:, None], self._first, axis=0)
            made += (wide * rate).sum(axis=1) / 2.0
        return np.asarray(made)

    def _pay(self, prices: Floats, ends: Floats) -> tuple[Floats, Floats]:
        """Return the least that each job pays, and the demand for each resource in each stretch."""
        after = np.maximum(ends - np.maximum(self._until[-1], self._released), 0.0)
        gained, wide, first, last = self._find_gains(prices, ends)
        gained += after**2 * self._worth / 2.0
        chosen = (first.astype(float) + last) * wide[self._choices.job] / 2.0
        return ends - gained, self._choices.takes.T @ chosen

    def _find_gains(self, prices: Floats, ends: Floats) -> tuple[Floats, Floats, Bools, Bools]:
        """Return the most that jobs gain, when in each stretch they rent, and which at both ends.

        Within a stretch the gain is convex in time: it is at most on the line between its ends.
        """
        begin = np.maximum(self._begin, self._released[:, None])
        until = np.maximum(np.minimum(self._until, ends[:, None]), begin)
        cost, job = self._choices.takes @ prices, self._choices.job
        gains, chosen = [], []
        for at in (begin, until):
            worth = np.maximum(ends[:, None] - at, 0.0) * self._worth[:, None]
            each = self._choices.speed[:, None] * worth[job] - cost
            gain = np.maximum.reduceat(each, self._first, axis=0)
            gains.append(gain)
            chosen.append(each >= gain[job])
        high, low = np.maximum(gains[0], 0.0), gains[1]
        part = np.where(low >= 0.0, 1.0, high / np.maximum(high - low, 1e-300))
        wide = part * (until - begin)
        gained = (wide * (high + np.maximum(low, 0.0))).sum(axis=1) / 2.0
        return gained, wide, chosen[0], chosen[1]


def _start_from(dual: BusyDual, released: Floats, resources: int) -> tuple[Floats, Floats, Floats]:
    """Begin and end of stretches of time, and the prices of one fast machine in them."""
    if not len(dual.start):
        return np.zeros(1), np.ones(1), np.zeros((resources, 1))
    last = max(float(dual.end[-1]), float(released.max()))
    edges = np.unique(
        np.concatenate(
            [
                np.zeros(1),
                np.quantile(released, np.linspace(0.0, 1.0, CELLS // 3)),
                np.quantile(np.append(dual.start, dual.end), np.linspace(0.0, 1.0, CELLS // 3)),
                np.linspace(0.0, 1.3 * last, CELLS // 3),
                last * np.array([1.5, 2.0]),
            ]
        )
    )
    begin, until = edges[:-1], edges[1:]
    middle = (begin + until) / 2.0
    at = np.clip(np.searchsorted(dual.start, middle) - 1, 0, len(dual.start) - 1)
    price = np.where(middle < dual.end[at], (dual.high[at] + dual.low[at]) / 2.0, 0.0)
    least = max(1e-3 * float(price.max()), LEAST_PRICE)
    return begin, until, np.tile(np.maximum(price, least) / resources, (resources, 1))
