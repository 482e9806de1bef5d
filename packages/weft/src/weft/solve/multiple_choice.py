"""Multiple-choice knapsack with several capacities: one size per job, that many GPUs of each kind.

Prices first: the Lagrangian dual in as many prices as there are kinds, solved by Newton steps on
a soft maximum of falling temperature. Each job then takes its best size at those prices; what
does not fit is shed at the least loss, what is left over goes to the best gain. The dual is a
certified bound, so every answer carries its own gap. Small cores are then closed exactly: by
dynamic programming over capacities, or by HiGHS.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.solve.cutting_planes import find_lowest
from weft.solve.exact import by_dynamic_programming, by_highs
from weft.solve.few_jobs import (
    FEW,
    NONE,
    ChoiceProblem,
    best_at,
    close_exactly,
    fits,
    leave_open,
    repair,
    take_at_prices,
    take_freely,
    total,
    used,
)
from weft.solve.prices import find_bound, lower_bound

Ints = NDArray[np.intp]
DP_STATES = 20_000
PASSES = 12
NEARLY = 0.01  # a gap from which a small problem is closed at once
GOLDEN = (5**0.5 - 1) / 2  # multiples of it spread evenly
CORE = 80  # jobs in an exact core at most


@frozen
class Answer:
    """The size of each job (-1: none), what they are worth together, and a bound on the best."""

    pick: Ints
    value: float
    bound: float
    prices: Floats

    @property
    def gap(self) -> float:
        """Distance from the best that this can have, as a part of the bound."""
        return (self.bound - self.value) / abs(self.bound) if self.bound else 0.0

    def within(self, gap: float, step: float) -> bool:
        """Return true if this is good enough, or cannot be improved by a whole step."""
        return self.bound - self.value <= max(gap * abs(self.bound), step * (1.0 - 1e-6))


def choose(
    problem: ChoiceProblem, *, gap: float = 1e-3, step: float = 0.0, start: Floats | None = None
) -> Answer:
    """A choice within `gap` of the best.

    `step` is the smallest difference between two totals, if there is one: a choice closer to
    the bound than that is the best. `start` are prices that may do already, such as those of
    a similar problem.
    """
    free = np.zeros(len(problem.capacity))
    greedy = best_if_all_fit(problem, free)
    if greedy is not None:
        worth = total(problem, greedy)
        return Answer(greedy, worth, worth, free)
    if start is not None and len(start) != len(problem.capacity):
        start = None
    if len(problem.value) > CORE:
        answer = at_lowest_bound(problem, free if start is None else start)
        return answer if answer.within(gap, step) else close_from(problem, answer, step)
    if start is not None:
        answer = at_prices(problem, start)
        if answer.within(gap, step):
            return answer
        if answer.gap <= NEARLY:
            return close_from(problem, answer, step)
    answer = at_prices(problem, dual_prices(problem))
    return answer if answer.within(gap, step) else close_from(problem, answer, step)


def best_if_all_fit(problem: ChoiceProblem, free: Floats) -> Ints | None:
    """Return each job's choice without prices; None if that is too much."""
    if len(problem.value) <= FEW:
        few = take_freely(problem.value, problem.kind, problem.count, problem.capacity)
        return None if few is None else np.array(few, dtype=np.intp)
    many = best_at(problem, free)
    return many if fits(problem, many) else None


def close_from(problem: ChoiceProblem, answer: Answer, step: float) -> Answer:
    """The answer with its gap closed exactly, as far as the core allows."""
    closed = close_gap(problem, answer, step)
    return Answer(closed, total(problem, closed), answer.bound, answer.prices)


def at_prices(problem: ChoiceProblem, prices: Floats) -> Answer:
    """Return the choice at given prices, and the bound they prove."""
    few = len(problem.value) <= FEW
    return at_prices_of_few(problem, prices) if few else at_prices_of_many(problem, prices)


def at_prices_of_many(problem: ChoiceProblem, prices: Floats) -> Answer:
    """Return the choice at given prices, worked out for all jobs together."""
    pick = repair(problem, best_at(problem, prices), prices, PASSES)
    return Answer(pick, total(problem, pick), dual_value(problem, prices), prices)


def at_prices_of_few(problem: ChoiceProblem, prices: Floats) -> Answer:
    """Return the choice at given prices, job by job."""
    offered = problem.value, problem.kind, problem.count, problem.capacity
    taken, left = take_at_prices(*offered, prices, PASSES)
    pick = np.array(taken, dtype=np.intp)
    return Answer(pick, total(problem, pick), left + float(prices @ problem.capacity), prices)


def dual_value(problem: ChoiceProblem, prices: Floats) -> float:
    """The bound that prices prove."""
    return find_bound(problem.value, problem.kind, problem.count, problem.capacity, prices)


def dual_prices(problem: ChoiceProblem) -> Floats:
    """Prices that make the bound low."""
    return lower_bound(problem.value, problem.kind, problem.count, problem.capacity)


def at_lowest_bound(problem: ChoiceProblem, start: Floats) -> Answer:
    """Return the choice at the prices that prove the lowest bound there is.

    There the jobs are of several minds between choices that together take what there is: each of
    those gets its part of the jobs.
    """
    picks: list[Ints] = []

    def bound_at(prices: Floats) -> tuple[float, Floats]:
        picks.append(best_at(problem, prices))
        left = problem.capacity - used(problem, picks[-1])
        return total(problem, picks[-1]) + float(prices @ left), left

    highest = np.zeros(len(problem.capacity))
    np.maximum.at(highest, problem.kind, problem.value.max(axis=0) / problem.count)
    lowest = find_lowest(bound_at, highest, start)
    dealt = deal([picks[number] for number in lowest.weights], [*lowest.weights.values()])
    pick = repair(problem, dealt, lowest.at, PASSES)
    worth = total(problem, pick)
    return Answer(pick, worth, max(lowest.value, worth), lowest.at)


def deal(picks: list[Ints], weights: list[float]) -> Ints:
    """One choice of several: each has its part of the jobs, spread over those alike."""
    every = np.stack(picks)
    pick: Ints = every[0].copy()
    differ = np.flatnonzero((every != every[0]).any(axis=0))
    alike = differ[np.lexsort(every[:, differ])]
    ends = np.cumsum(weights) / sum(weights)
    turn = np.searchsorted(ends[:-1], np.arange(len(alike)) * GOLDEN % 1.0, side="right")
    pick[alike] = every[turn, alike]
    return pick


def close_gap(problem: ChoiceProblem, answer: Answer, step: float) -> Ints:
    """Solve exactly for the jobs whose best size the bound does not settle."""
    few = len(problem.value) <= FEW
    return (close_gap_of_few if few else close_gap_of_many)(problem, answer, step)


def close_gap_of_few(problem: ChoiceProblem, answer: Answer, step: float) -> Ints:
    """Close the gap with the compiled search where it is small enough for that."""
    offered = problem.value, problem.kind, problem.count, problem.capacity, answer.prices
    settled = close_exactly(*offered, find_slack(answer, step), DP_STATES)
    if settled is None:
        return close_gap_of_many(problem, answer, step)
    return take_if_better(problem, answer, np.array(settled, dtype=np.intp))


def close_gap_of_many(problem: ChoiceProblem, answer: Answer, step: float) -> Ints:
    """Close the gap for all jobs together."""
    fixed, open_rows, left = leave_open(problem, answer.prices, find_slack(answer, step))
    if len(open_rows) > CORE:
        # Too many to solve for: keep all but those that are most in two minds.
        net = problem.value - (answer.prices[problem.kind] * problem.count)[None, :]
        top = np.maximum(net.max(axis=1), 0.0)
        second = np.partition(np.append(top[:, None] - net, top[:, None], axis=1), 1, axis=1)[:, 1]
        open_rows = np.sort(np.argsort(second, kind="stable")[:CORE])
        fixed = answer.pick.copy()
        fixed[open_rows] = NONE
    room = problem.capacity - used(problem, fixed)
    if (room < -1e-9).any() or not len(open_rows):
        return answer.pick
    solve = by_dynamic_programming if np.prod(room + 1.0) <= DP_STATES else by_highs
    fixed[open_rows] = solve(left[open_rows], problem.kind, problem.count, room)
    return take_if_better(problem, answer, fixed)


def find_slack(answer: Answer, step: float) -> float:
    """Return how much below the bound a choice may be that is still better than this answer."""
    return answer.bound - answer.value - step * (1.0 - 1e-6) + 1e-9


def take_if_better(problem: ChoiceProblem, answer: Answer, pick: Ints) -> Ints:
    """The new choice, or the answer's where there is none or it is worth less."""
    worse = not len(pick) or total(problem, pick) < answer.value - 1e-12
    return answer.pick if worse else pick
