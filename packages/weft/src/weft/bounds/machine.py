"""One machine as fast as a whole cluster, on which jobs wait for each other one by one."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from weft.frozen import frozen

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Cells = tuple[Floats, Floats, Floats]  # begin, end and price of stretches of time
CELLS = 64  # of time, in which prices are taken at their least
HALVINGS = 24
AT_ONCE = 4096  # jobs, so that memory stays small


def srpt_flow(released: Floats, work: Floats) -> float:
    """Return the least sum of flow times on one machine: shortest remaining work first.

    Both are by job, in order of release.
    """
    waiting: list[tuple[float, float]] = []
    at, flow = 0.0, 0.0
    arrivals = [*zip(released.tolist(), work.tolist(), strict=True), (inf, 0.0)]
    for (release, seconds), (until, _) in pairwise(arrivals):
        at = max(at, release)
        heappush(waiting, (seconds, release))
        while waiting and at < until:
            left, since = waiting[0]
            if at + left > until:
                heapreplace(waiting, (left - (until - at), since))
                break
            heappop(waiting)
            at += left
            flow += at - since
    return flow


@frozen
class Goal:
    """Weights of the times from release to end of each job, whose sum should be small.

    Such a time counts as `least` if it is less: the length of the job, or more where it is as good.
    """

    weight: Floats
    least: Floats


@frozen
class BusyDual:
    """Mean busy times on one machine that serves the least work first, and the prices behind them.

    Work is taken per weight. The price of the machine falls from `high` to `low` in each stretch of
    time `start` to `end` in which it is busy, and is 0 elsewhere. At it each job pays `paid`: its
    mean busy time and its work per weight, at the best of all times after its release.
    """

    released: Floats
    work: Floats
    start: Floats
    end: Floats
    high: Floats
    low: Floats
    paid: Floats

    @property
    def revenue(self) -> float:
        """The integral of the price."""
        return float(((self.high + self.low) / 2.0 * (self.end - self.start)).sum())

    def least(self, goal: Goal, length: Floats) -> float:
        """The least weighted sum at these prices, of jobs that may go as fast as the machine."""
        return self._sum(goal, length, self.paid)

    def least_at_own_speed(self, goal: Goal, length: Floats) -> float:
        """The least weighted sum at these prices, of jobs that need `length` each at least."""
        return self._sum(goal, length, np.maximum(self.paid, self._paid_over(length)))

    def _sum(self, goal: Goal, length: Floats, paid: Floats) -> float:
        took = np.maximum(paid + length / 2.0 - self.released, goal.least)
        return float((goal.weight * took).sum()) - self.revenue

    def _paid_over(self, length: Floats) -> Floats:
        """The least that each job pays if no part of it can be done at more than its own speed."""
        cells, paid = self._cells(), self.released.copy()
        long = np.flatnonzero(length > 0.0)
        for first in range(0, len(long), AT_ONCE):
            some = long[first : first + AT_ONCE]
            paid[some] = pay(self.released[some], self.work[some], length[some], cells)
        return paid

    def _cells(self) -> Cells:
        """Begin, end and least price of a few stretches of time; the last is without end."""
        busy = len(self.start)
        if not busy:
            return np.zeros(1), np.full(1, inf), np.zeros(1)
        first = np.unique(np.linspace(0, busy, min(CELLS, busy) + 1).astype(int))[:-1]
        idle_after = np.append(self.start[1:] > self.end[:-1], True)
        least = np.where(idle_after, 0.0, self.low)
        begin = np.append(self.start[first], self.end[-1])
        begin[0] = 0.0
        price = np.append(np.minimum.reduceat(least, first), 0.0)
        price[0] = 0.0 if self.start[0] > 0.0 else price[0]
        return begin, np.append(begin[1:], inf), price


def pay(released: Floats, work: Floats, length: Floats, cells: Cells) -> Floats:
    """The least mean of time plus work times price, over times of `length` after release.

    Any threshold gives a lower bound on it; halving finds the best one.
    """
    (begin, until, price), rows = cells, released[:, None]
    length = length[:, None]
    begin = np.maximum(begin, rows)
    room, cost = np.maximum(until - begin, 0.0), begin + work[:, None] * price
    low = rows + length
    high = low + work[:, None] * price.max()
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        enough = np.clip(middle - cost, 0.0, room).sum(axis=1, keepdims=True) >= length
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    used = np.clip(low - cost, 0.0, room)
    rent = (used * (low - cost - used / 2.0)).sum(axis=1)
    paid: Floats = low[:, 0] - rent / length[:, 0]
    return paid


def busy_dual(released: Floats, work: Floats, weight: Floats, some: Bools) -> BusyDual:
    """Serve the least work per weight first of `some` jobs; all are by job, in order of release.

    The prices are those of these jobs alone; the others pay them as well.
    """
    rank = work / weight
    start, end, job, following = _serve(
        released.tolist(), np.where(some, work, 0.0).tolist(), rank.tolist()
    )
    high, low = np.zeros(len(start)), np.zeros(len(start))
    paid, seconds = released.copy(), rank.tolist()
    most: dict[int, float] = {}  # what a second of each job's work costs at the best time
    for i in range(len(start) - 1, -1, -1):
        begin, until, k = start[i], end[i], job[i]
        if k not in most:  # it ends here, where the one that waits next would pay as much
            after = following.get(k)
            price = most[after] - until / seconds[after] if after in most else 0.0
            most[k] = until / seconds[k] + max(price, 0.0)
        low[i] = max(most[k] - until / seconds[k], 0.0)
        high[i] = max(most[k] - begin / seconds[k], 0.0)
    for k, each in most.items():
        paid[k] = each * seconds[k]
    return BusyDual(released, rank, np.array(start), np.array(end), high, low, paid)


def _serve(
    released: list[float], work: list[float], rank: list[float]
) -> tuple[list[float], list[float], list[int], dict[int, int]]:
    """Begin, end and job of each stretch, and the job that waits next at the end of each job."""
    start: list[float] = []
    end: list[float] = []
    job: list[int] = []
    following: dict[int, int] = {}
    left = work.copy()
    waiting: list[tuple[float, int]] = []
    at = 0.0
    for k, release in enumerate(released):
        until = released[k + 1] if k + 1 < len(released) else inf
        at = max(at, release)
        if work[k] > 0.0:
            heappush(waiting, (rank[k], k))
        while waiting and at < until:
            first = waiting[0][1]
            begin, done = at, at + left[first] <= until
            at = at + left[first] if done else until
            left[first] -= at - begin
            if done:
                heappop(waiting)
                if waiting:
                    following[first] = waiting[0][1]
            if at > begin:
                start.append(begin)
                end.append(at)
                job.append(first)
    return start, end, job, following
