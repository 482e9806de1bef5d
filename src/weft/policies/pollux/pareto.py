"""The second objective of the authors' code, and the order of states that do well on either.

Qiao et al., OSDI 2021; fronts and crowding as in NSGA-II (Deb et al., IEEE Transactions on
Evolutionary Computation 6(2), 2002).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from weft.core.state.table import Floats, Rows
from weft.frozen import frozen
from weft.solve.genetic import Counts, totals


def utility(values: Floats, capacity: Counts, states: Counts) -> Floats:
    """The average part of ideal scaling on the nodes in use, of each of jobs x states x nodes."""
    total = totals(states).astype(np.intp)
    spread = (np.count_nonzero(states, axis=2) > 1).astype(np.intp)
    speed = values[np.arange(len(states))[:, None], spread, total].sum(axis=0)
    active = (states.sum(axis=0) > 0) @ capacity
    shares: Floats = speed / np.maximum(active, 1.0)
    return shares


@frozen
class Goals:
    """What makes a state good: the power mean with exponent `p`, and utility; more is better."""

    p: float
    values: Floats
    capacity: Counts

    def __call__(self, states: Counts, score: Floats) -> Floats:
        """Two rows, from the sums over jobs that the power mean is made of."""
        mean = score / max(len(states), 1)
        fitness = (np.sign(self.p) * mean) ** (1.0 / self.p) if self.p else np.exp(mean)
        return np.stack([fitness, utility(self.values, self.capacity, states)])


def fronts(goals: Floats) -> Rows:
    """The front of each state: 0 if nothing beats it, 1 if only states of front 0 do, and on.

    From the best score down, a state is beaten by every front that has its utility already.
    """
    order = np.lexsort((-goals[1], -goals[0]))
    rank = np.empty(len(order), dtype=np.intp)
    reached: list[float] = []  # the highest utility of each front, negated: ascending
    last, front = None, 0
    for at, score, use in zip(order, *goals[:, order].tolist(), strict=True):
        if (score, use) != last:
            front = bisect_right(reached, -use)
            reached[front : front + 1] = [-use]
            last = (score, use)
        rank[at] = front
    return rank


def compute_crowding(goals: Floats, rank: Rows) -> Floats:
    """How far apart the neighbours of each state on its front are; infinite at the ends.

    Of states with the same goals on a front of more than two, all but the first are at no
    distance. On a front more of one goal is less of the other: one order serves for both.
    """
    order = np.lexsort((goals[0], rank))
    front, points = rank[order], goals[:, order]
    new = np.diff(front, prepend=-1) != 0
    first = new | (np.diff(points, prepend=np.nan) != 0).any(axis=0)
    few = np.bincount(front)[front] <= 2
    far = np.where(few, np.inf, 0.0)
    far[first & ~few] = _gaps(points[:, first & ~few], front[first & ~few])
    distances = np.empty(len(rank))
    distances[order] = far
    return distances


def _gaps(points: Floats, front: Rows) -> Floats:
    """The same for states that all differ, front by front along the first goal."""
    if not len(front):
        return np.empty(0)
    starts = np.flatnonzero(np.diff(front, prepend=-1))
    ends = np.append(starts[1:], len(front)) - 1
    of = np.cumsum(np.diff(front, prepend=-1) != 0) - 1
    span = np.abs(points[:, ends] - points[:, starts])[:, of]
    gap = np.full(len(front), np.inf)
    apart = np.abs(points[:, 2:] - points[:, :-2])
    gap[1:-1] = (apart / np.where(span > 0, span, np.inf)[:, 1:-1]).sum(axis=0)
    gap[starts] = gap[ends] = np.inf
    gap[starts[starts == ends]] = 0.0
    return gap
