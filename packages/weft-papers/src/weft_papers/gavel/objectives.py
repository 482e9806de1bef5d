"""Gavel's objectives: each turns a problem into fractions of time by job and kind.

Section numbers are those of the paper where it has them: 4.1 fairness, 4.2 the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.solve.linear_program import NoSolution, Sparse, maximise
from weft_papers.gavel.problem import (
    AllocationProblem,
    Program,
    Solution,
    fold,
    greatest_sum,
    highest_level,
    unfold,
)

PRECISION = 1e-7
ITERATIONS = 60


def normal(problem: AllocationProblem) -> Floats:
    """Throughput of each job when its time is split over kinds in proportion to their GPUs."""
    total = problem.gpus.sum()
    return np.asarray(problem.rates @ (problem.gpus / total if total else problem.gpus))


def compute_isolated(problem: AllocationProblem) -> Floats:
    """Throughput of each job on an equal part of every kind."""
    jobs = max(float(problem.counts.sum()), 1.0)
    part = problem.gpus[None, :] / jobs / problem.gangs[:, None]
    part = part / np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    return np.asarray((problem.rates * part).sum(axis=1))


def max_min_fairness(problem: AllocationProblem) -> Solution:
    """Maximise the least normalised throughput: least attained service, in GPU-time."""
    small, group = fold(problem, "gangs", "weights", *_models(problem))
    # z <= (1 / w_m) s_m thr(m, X) / norm_m
    need = small.weights * normal(small) / small.gangs
    solution, _ = highest_level(Program(small), need)
    return unfold(small, solution, problem, group)


def makespan(problem: AllocationProblem) -> Solution:
    """Finish everything as early as possible; the value is the makespan in seconds."""
    small, group = fold(problem, "gangs", "steps", *_models(problem))
    # With u = 1 / T: thr(m, X) >= steps_m u, one linear program.
    solution, _ = highest_level(Program(small), small.steps)
    solution = replace(solution, value=1.0 / solution.value if solution.value > 0.0 else np.inf)
    return unfold(small, solution, problem, group)


def finish_time_fairness(problem: AllocationProblem) -> Solution:
    """Minimise the worst of finish time over finish time alone (Themis); the value is that."""
    small, group = fold(problem, "gangs", "steps", "elapsed", "ideal", *_models(problem))
    program = Program(small)
    runs = program.best_speeds() > 0.0
    ideal, steps, t = small.ideal, np.where(runs, small.steps, 0.0), small.elapsed

    def worst(rate: Floats) -> float:
        finish = t + steps / np.maximum(rate, 1e-300)
        return float((finish / ideal)[runs].max(initial=0.0))

    def within(rho: float) -> tuple[float, Solution]:
        # thr(m, X) >= z steps_m / (rho D_m - t_m): a ratio can be met if z may be 1
        solution, _ = highest_level(program, steps / np.maximum(rho * ideal - t, 1e-300))
        return solution.value - 1.0, replace(solution, value=worst(solution.throughput(small)))

    fastest = small.rates.max(axis=1, initial=0.0)
    solution = minimise_value(within, worst(fastest), worst(compute_isolated(small)))
    return unfold(small, solution, problem, group)


def max_sum_throughput(problem: AllocationProblem) -> Solution:
    """The most steps per second in total, whichever jobs make them."""
    small, group = fold(problem, "gangs", *_models(problem))
    program = Program(small)
    return unfold(small, greatest_sum(program, program.throughput()), problem, group)


def in_order(problem: AllocationProblem) -> Solution:
    """First come first served, or any other `rank`: the earlier weighs more."""
    program = Program(problem)
    best = np.maximum(problem.rates.max(axis=1, initial=0.0), 1e-300)
    # sum over m of thr(m, X) / thr(m, X_fastest) (M - m)
    weight = (len(problem) - problem.rank) / best
    worth = np.bincount(program.variable, program.rate * weight[program.member], program.n)
    return greatest_sum(program, worth.astype(float))


def cheapest(problem: AllocationProblem, prices: Floats) -> Solution:
    """The most steps per dollar; with deadlines, the most that keeps them, if any does.

    A ratio of linear forms, solved by the substitution of Charnes and Cooper; among equal
    ratios the one with most throughput.
    """
    small, group = fold(problem, "gangs", *_deadlines(problem), *_models(problem))
    program, floor = Program(small), _floors(small)
    gain = program.throughput()
    bill = prices[program.on] * program.gang
    ratio = _best_ratio(program, gain, bill, floor)
    if floor is not None and ratio == 0.0:  # no deadline can be kept
        floor, ratio = None, _best_ratio(program, gain, bill, None)
    solution = greatest_sum(program, gain, floor, surplus=gain - ratio * bill)
    return unfold(small, replace(solution, value=ratio), problem, group)


def with_deadlines(problem: AllocationProblem) -> Solution:
    """The most throughput that meets every deadline; if none can, as if there were none."""
    small, group = fold(problem, "gangs", *_deadlines(problem), *_models(problem))
    program = Program(small)
    return unfold(small, within_deadlines(program, program.throughput()), problem, group)


def hierarchical(
    problem: AllocationProblem, shares: Mapping[int, float], in_turn: set[int]
) -> Solution:
    """Weighted fairness between tenants, and inside each fairness or first come first served.

    Lexicographic: a job that cannot be raised further is held, and the others go on rising.
    """
    queued = np.isin(problem.tenant, list(in_turn))
    rank = np.where(queued, problem.rank, 0.0)
    told_apart = replace(problem, rank=rank)
    keys = ("gangs", "weights", "tenant", "rank", *_models(problem))
    small, group = fold(told_apart, *keys)
    solution = water_filling(small, normal(small), shares, in_turn)
    return unfold(small, solution, problem, group)


def minimise_value(
    within: Callable[[float], tuple[float, Solution]], low: float, high: float
) -> Solution:
    """The solution of least value, by false position (Illinois) on how far a target is missed.

    `within` answers a target with a number above 0 if there is slack and below 0 if it is
    missed, and with a solution of which the value is what it really reaches.
    """
    (left, _), (right, best) = within(low), within(high)
    side = 0.0
    for _ in range(ITERATIONS):
        if best.value - low <= PRECISION * best.value or right <= left:
            break
        target = low - left * (high - low) / (right - left)
        slack, solution = within(target)
        best = min(best, solution, key=lambda candidate: candidate.value)
        if abs(slack) <= PRECISION:
            break
        again = slack * side > 0.0  # the other end stays where it is: lean towards it
        if slack > 0.0:
            high, right, left = target, slack, left / 2.0 if again else left
        else:
            low, left, right = target, slack, right / 2.0 if again else right
        side = slack
    return best


OBJECTIVES: Mapping[str, Callable[[AllocationProblem], Solution]] = {
    "max-min-fairness": max_min_fairness,
    "finish-time-fairness": finish_time_fairness,
    "makespan": makespan,
    "max-sum-throughput": max_sum_throughput,
    "fifo": in_order,
    "shortest-job": in_order,
    "slo": with_deadlines,
}


def _best_ratio(program: Program, gain: Floats, bill: Floats, floor: Floats | None) -> float:
    """The greatest gain per bill: with y = t x and a bill of 1, a linear program in y and t."""
    scale = float(gain.max(initial=0.0))
    if scale == 0.0:
        return 0.0
    matrix = program.base.beside(-program.limits)
    limits = np.append(np.zeros(len(program.limits)), 1.0)
    if floor is not None:
        matrix = matrix.above(program.speeds().scaled(np.full(len(floor), -1.0)).beside(floor))
        limits = np.append(np.zeros(len(program.limits) + len(floor)), 1.0)
    whole = matrix.above(Sparse.of(np.append(bill, 0.0)[None, :]))
    return maximise(np.append(gain / scale, 0.0), whole, limits).value * scale


def within_deadlines(program: Program, worth: Floats) -> Solution:
    """The most worth that meets every deadline; if none can, as if there were none."""
    floor = _floors(program.problem)
    if floor is None:
        return greatest_sum(program, worth)
    try:
        return greatest_sum(program, worth, floor)
    except NoSolution:
        return greatest_sum(program, worth)


def _floors(problem: AllocationProblem) -> Floats | None:
    """thr(m, X) >= steps_m / SLO_m, or nothing where no job has a deadline."""
    if not len(problem.within) or not np.isfinite(problem.within).any():
        return None
    return np.asarray(problem.steps / np.maximum(problem.within, 1e-9))


def _deadlines(problem: AllocationProblem) -> tuple[str, ...]:
    return ("steps", "within") if _floors(problem) is not None else ()


def _models(problem: AllocationProblem) -> tuple[str, ...]:
    """Only pairs tell models of equal speed apart."""
    return ("model",) if len(problem.pairs.first) else ()


# ---- water filling: raise all jobs together, hold those that cannot rise, go on (paper 4.3) The
# result is lexicographically fair: no job can get more without one at a lower level losing.


EPS = 1e-7
BELOW = 1.0 - 1e-9  # of a level: rounding never makes the next program infeasible


def water_filling(
    problem: AllocationProblem, norm: Floats, shares: Mapping[int, float], in_turn: set[int]
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
        # (s_m / w_m) (thr / norm - c_m) >= z, and no job falls below c_m
        solution, duals = highest_level(program, rise * norm, level * BELOW * norm)
        level = level + max(solution.value, 0.0) * rise
        stuck = (weight > 0.0) & (duals > EPS * duals.max(initial=0.0))
        held = held | (stuck if stuck.any() else weight > 0.0)
    return Solution(float(level[norm > 0.0].min(initial=np.inf)), solution.alone, solution.paired)


def _weights(
    problem: AllocationProblem, held: Bools, shares: Mapping[int, float], in_turn: set[int]
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
