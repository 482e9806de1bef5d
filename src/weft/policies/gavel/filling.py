"""Water filling: raise everybody's level together, hold whoever cannot rise, go on (paper 4.3).

The result is lexicographically fair: no job can get more without one at a lower level losing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.core.state.table import Bools, Floats
from weft.policies.gavel.problem import Problem, Program, Solution, highest_level

EPS = 1e-7


def water_filling(
    problem: Problem, norm: Floats, shares: Mapping[int, float], in_turn: set[int]
) -> Solution:
    """Levels of normalised throughput; the value is the lowest.

    A job whose row has a dual above 0 is a bottleneck: by complementary slackness nothing can
    raise it while the others hold their levels. Every program has one, so there are at most as
    many programs as classes.
    """
    program = Program(problem)
    level = np.zeros(len(problem))
    held = norm <= 0.0
    solution = program.solution(0.0, np.zeros(program.n))
    while (weight := _weights(problem, held, shares, in_turn)).any():
        rise = weight / problem.gangs
        # (s_m / w_m) (thr / norm - c_m) >= z, and nobody falls below c_m
        solution, duals = highest_level(program, rise * norm, _below(level) * norm)
        level = level + max(solution.value, 0.0) * rise
        stuck = (weight > 0.0) & (duals > EPS * duals.max(initial=0.0))
        held = held | (stuck if stuck.any() else weight > 0.0)
    return Solution(float(level[norm > 0.0].min(initial=np.inf)), solution.alone, solution.paired)


def _below(level: Floats) -> Floats:
    """A hair less than a level, so that rounding never makes the next program infeasible."""
    return level * (1.0 - 1e-9)


def _weights(
    problem: Problem, held: Bools, shares: Mapping[int, float], in_turn: set[int]
) -> Floats:
    """A tenant's weight divided among its jobs that can still rise, or given to the first."""
    weight = np.zeros(len(problem))
    for tenant in np.unique(problem.tenant):
        mine = (problem.tenant == tenant) & ~held
        if not mine.any():
            continue
        whole = shares.get(int(tenant), 1.0)
        if int(tenant) in in_turn:
            first = np.flatnonzero(mine)[problem.rank[mine].argmin()]
            weight[first] = whole
        else:
            own = np.where(mine, problem.weights, 0.0)
            weight += whole * own / (own * problem.counts).sum()
    return weight
