"""The second objective of the authors' code: utility, kept beside fitness as a Pareto set."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from weft.core.table import Floats, Rows
from weft.pieces.size.genetic import Counts, totals


def utility(values: Floats, capacity: Counts, states: Counts) -> Floats:
    """The average part of ideal scaling on the nodes in use, of each of jobs x states x nodes."""
    total = totals(states).astype(np.intp)
    spread = (np.count_nonzero(states, axis=2) > 1).astype(np.intp)
    speed = values[np.arange(len(states))[:, None], spread, total].sum(axis=0)
    active = (states.sum(axis=0) > 0) @ capacity
    found: Floats = speed / np.maximum(active, 1.0)
    return found


@dataclass(frozen=True, slots=True)
class Pareto:
    """Order states by how many fronts dominate them, then by how lonely they are on theirs."""

    values: Floats
    capacity: Counts

    def __call__(self, states: Counts, score: Floats) -> Rows:
        """The order of survival of NSGA-II."""
        goals = np.stack([score, utility(self.values, self.capacity, states)])
        rank = fronts(goals)
        return np.lexsort((-crowding(goals, rank), rank))


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


def crowding(goals: Floats, rank: Rows) -> Floats:
    """How far apart the neighbours of each state on its front are; infinite at the ends."""
    far = np.zeros(len(rank))
    for goal in goals:
        order = np.lexsort((goal, rank))
        value, front = goal[order], rank[order]
        starts = np.flatnonzero(np.diff(front, prepend=-1))
        ends = np.append(starts[1:], len(front)) - 1
        span = (value[ends] - value[starts])[front]
        gap = np.full(len(front), np.inf)
        gap[1:-1] = (value[2:] - value[:-2]) / np.where(span > 0, span, np.inf)[1:-1]
        gap[starts] = gap[ends] = np.inf
        far[order] += gap
    return far
