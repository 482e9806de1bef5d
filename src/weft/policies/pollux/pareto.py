"""The second objective of the authors' code: utility, kept beside fitness as a Pareto set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.table import Bools, Floats, Rows
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
        lonely = np.zeros(len(score))
        for front in range(int(rank.max()) + 1):
            members = np.flatnonzero(rank == front)
            lonely[members] = crowding(goals[:, members])
        return np.lexsort((-lonely, rank))


def fronts(goals: Floats) -> Rows:
    """The front of each state: 0 if nothing beats it, 1 if only states of front 0 do, and on."""
    one, other = goals[:, :, None], goals[:, None, :]
    beats: Bools = np.logical_and((one >= other).all(axis=0), (one > other).any(axis=0))
    rank = np.full(goals.shape[1], -1, dtype=np.intp)
    front = 0
    while (open_ := rank < 0).any():
        rank[open_ & ~beats[open_].any(axis=0)] = front
        front += 1
    return rank


def crowding(goals: Floats) -> Floats:
    """How far apart the neighbours of each state on a front are; infinite at the ends."""
    far = np.zeros(goals.shape[1])
    for goal in goals:
        order = np.argsort(goal, kind="stable")
        span = goal[order[-1]] - goal[order[0]]
        far[order[[0, -1]]] = np.inf
        if span > 0 and len(order) > 2:
            far[order[1:-1]] += (goal[order[2:]] - goal[order[:-2]]) / span
    return far
