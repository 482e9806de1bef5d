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
from weft.solve.few_jobs import FEW, add_up, close_exactly, leave_open, take_at_prices, take_freely
from weft.solve.prices import find_bound, lower_bound

Ints = NDArray[np.intp]
DP_STATES = 20_000
PASSES = 12
NEARLY = 0.01  # a gap from which a small problem is closed at once
GOLDEN = (5**0.5 - 1) / 2  # multiples of it spread evenly
CORE = 80  # jobs in an exact core at most
NONE = -1


@frozen
class Problem:
    """What each size is worth to each job, and what it takes.

    `value[i, j]` is that of giving job i size j (-inf: not allowed), which takes `count[j]`
    GPUs of kind `kind[j]`; nothing at all is worth 0.
    """

    value: Floats
    kind: Ints
    count: Floats
    capacity: Floats


@frozen
class Answer:
    """The size of each job (-1: none), what they are worth together, and a bound on the best."""

    pick: Ints
    value: float
    bound: float
    prices: Floats

    @property
    def gap(self) -> float:
        """How far from the best this can be, as a part of the bound."""
        return (self.bound - self.value) / abs(self.bound) if self.bound else 0.0

    def within(self, gap: float, step: float) -> bool:
        """Whether this is good enough, or cannot be improved by a whole step."""
        return self.bound - self.value <= max(gap * abs(self.bound), step * (1.0 - 1e-6))


def choose(
    problem: Problem, *, gap: float = 1e-3, step: float = 0.0, start: Floats | None = None
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


def best_if_all_fit(problem: Problem, free: Floats) -> Ints | None:
    """What each job takes if nothing has a price, unless that is too much."""
    if len(problem.value) <= FEW:
        few = take_freely(problem.value, problem.kind, problem.count, problem.capacity)
        return None if few is None else np.array(few, dtype=np.intp)
    many = best_at(problem, free)
    return many if fits(problem, many) else None


def close_from(problem: Problem, answer: Answer, step: float) -> Answer:
    """The answer with its gap closed exactly, as far as the core allows."""
    closed = close_gap(problem, answer, step)
    return Answer(closed, total(problem, closed), answer.bound, answer.prices)


def at_prices(problem: Problem, prices: Floats) -> Answer:
    """What comes of given prices, and the bound they prove."""
    few = len(problem.value) <= FEW
    return at_prices_of_few(problem, prices) if few else at_prices_of_many(problem, prices)


def at_prices_of_many(problem: Problem, prices: Floats) -> Answer:
    """The same, worked out for all jobs together."""
    pick = repair(problem, best_at(problem, prices), prices)
    return Answer(pick, total(problem, pick), dual_value(problem, prices), prices)


def at_prices_of_few(problem: Problem, prices: Floats) -> Answer:
    """The same, job by job."""
    offered = problem.value, problem.kind, problem.count, problem.capacity
    taken, left = take_at_prices(*offered, prices, PASSES)
    pick = np.array(taken, dtype=np.intp)
    return Answer(pick, total(problem, pick), left + float(prices @ problem.capacity), prices)


def best_at(problem: Problem, prices: Floats) -> Ints:
    """What each job takes at given prices; ties go to the earlier size, and to nothing."""
    net = problem.value - (prices[problem.kind] * problem.count)[None, :]
    pick = net.argmax(axis=1)
    return np.where(net[np.arange(len(pick)), pick] > 0.0, pick, NONE)


def total(problem: Problem, pick: Ints) -> float:
    """What a choice is worth."""
    return add_up(problem.value, pick)


def used(problem: Problem, pick: Ints) -> Floats:
    """GPUs of each kind that a choice takes."""
    taken = pick[pick >= 0]
    weights = problem.count[taken]
    total_by_kind = np.bincount(problem.kind[taken], weights, len(problem.capacity))
    return np.asarray(total_by_kind, dtype=float)


def fits(problem: Problem, pick: Ints) -> bool:
    """Whether a choice keeps within every capacity."""
    return bool((used(problem, pick) <= problem.capacity + 1e-9).all())


def dual_value(problem: Problem, prices: Floats) -> float:
    """The bound that prices prove."""
    return find_bound(problem.value, problem.kind, problem.count, problem.capacity, prices)


def dual_prices(problem: Problem) -> Floats:
    """Prices that make the bound low."""
    return lower_bound(problem.value, problem.kind, problem.count, problem.capacity)


def at_lowest_bound(problem: Problem, start: Floats) -> Answer:
    """What comes of the prices that prove the lowest bound there is.

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
    pick = repair(problem, dealt, lowest.at)
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


def repair(problem: Problem, pick: Ints, prices: Floats) -> Ints:
    """Shed what does not fit at the least loss a GPU, then give what is left to the best gain."""
    pick = pick.copy()
    room = problem.capacity - used(problem, pick)
    while (room < -1e-9).any():
        _shed(problem, pick, room, int(np.argmin(room)), prices)
    for _ in range(PASSES):
        if not _fill(problem, pick, room):
            break
    return pick


def _shed(problem: Problem, pick: Ints, room: Floats, k: int, prices: Floats) -> None:
    """One skip the jobs on kind `k`, those that lose least for a freed GPU first."""
    rows = np.flatnonzero((pick >= 0) & (problem.kind[pick] == k))
    now = pick[rows]
    net = problem.value[rows] - (prices[problem.kind] * problem.count)[None, :]
    net = np.concatenate([net, np.zeros((len(rows), 1))], axis=1)
    still = np.append(np.where(problem.kind == k, problem.count, 0.0), 0.0)
    freed = problem.count[now][:, None] - still[None, :]
    full = (problem.kind != k) & (problem.count > room[problem.kind] + 1e-9)
    loss = net[np.arange(len(rows)), now][:, None] - net
    useful = np.minimum(np.maximum(freed, 1e-9), max(-float(room[k]), 1.0))
    per_gpu = np.where((freed > 0.0) & ~np.append(full, False)[None, :], loss / useful, np.inf)
    size = per_gpu.argmin(axis=1)
    cost = per_gpu[np.arange(len(rows)), size]
    for at in np.argsort(cost, kind="stable"):
        if room[k] >= -1e-9:
            return
        to = int(size[at]) if size[at] < len(problem.count) else NONE
        if to >= 0 and problem.kind[to] != k and problem.count[to] > room[problem.kind[to]]:
            return  # another kind has filled up meanwhile: choose again
        _move(problem, pick, room, int(rows[at]), to)


def _fill(problem: Problem, pick: Ints, room: Floats) -> bool:
    """One skip the jobs, those that gain most for a GPU first; whether any moved."""
    held = np.where(pick >= 0, problem.count[pick], 0.0)
    own = np.where(pick >= 0, problem.kind[pick], -1)
    worth = np.where(pick >= 0, problem.value[np.arange(len(pick)), pick], 0.0)
    same = own[:, None] == problem.kind[None, :]
    extra = problem.count[None, :] - np.where(same, held[:, None], 0.0)
    gain = problem.value - worth[:, None]
    open_ = (extra <= room[problem.kind][None, :] + 1e-9) & (gain > 1e-12)
    density = np.where(open_, gain / np.maximum(extra, 1e-3), -np.inf)
    size = density.argmax(axis=1)
    best = density[np.arange(len(pick)), size]
    moved = False
    for row in np.argsort(-best, kind="stable"):
        if best[row] == -np.inf:
            break
        to = int(size[row])
        if extra[row, to] <= room[problem.kind[to]] + 1e-9:
            _move(problem, pick, room, int(row), to)
            moved = True
    return moved


def _move(problem: Problem, pick: Ints, room: Floats, row: int, size: int) -> None:
    if pick[row] >= 0:
        room[problem.kind[pick[row]]] += problem.count[pick[row]]
    pick[row] = size
    if size >= 0:
        room[problem.kind[size]] -= problem.count[size]


def close_gap(problem: Problem, answer: Answer, step: float) -> Ints:
    """Solve exactly for the jobs whose best size the bound does not settle."""
    few = len(problem.value) <= FEW
    return (close_gap_of_few if few else close_gap_of_many)(problem, answer, step)


def close_gap_of_few(problem: Problem, answer: Answer, step: float) -> Ints:
    """The same, job by job."""
    slack = answer.bound - answer.value - step * (1.0 - 1e-6) + 1e-9
    offered = problem.value, problem.kind, problem.count, problem.capacity, answer.prices
    settled = close_exactly(*offered, slack, DP_STATES)
    if settled is None:
        settled, open_rows, value, room = leave_open(*offered, slack)
        chosen = by_highs(value, problem.kind, problem.count, np.array(room))
        for row, size in zip(open_rows, chosen.tolist(), strict=True):
            settled[row] = size
    if not settled:
        return answer.pick
    closed = np.array(settled, dtype=np.intp)
    return closed if total(problem, closed) >= answer.value - 1e-12 else answer.pick


def close_gap_of_many(problem: Problem, answer: Answer, step: float) -> Ints:
    """The same, worked out for all jobs together."""
    prices, bound, pick, worth = answer.prices, answer.bound, answer.pick, answer.value
    net = problem.value - (prices[problem.kind] * problem.count)[None, :]
    top = np.maximum(net.max(axis=1), 0.0)
    slack = bound - worth - step * (1.0 - 1e-6) + 1e-9
    alive = top[:, None] - net <= slack
    idle = top <= slack
    options = alive.sum(axis=1) + idle
    fixed = np.where(alive.any(axis=1), alive.argmax(axis=1), NONE)
    if (options > 1).sum() > CORE:
        # Too many to solve for: keep all but those that are most in two minds.
        second = np.partition(np.append(top[:, None] - net, top[:, None], axis=1), 1, axis=1)[:, 1]
        open_rows = np.sort(np.argsort(second, kind="stable")[:CORE])
        fixed = pick.copy()
    else:
        open_rows = np.flatnonzero(options > 1)
    fixed[open_rows] = NONE
    room = problem.capacity - used(problem, fixed)
    if (room < -1e-9).any() or not len(open_rows):
        return pick
    value = np.where(alive, problem.value, -np.inf)[open_rows]
    solve = by_dynamic_programming if np.prod(room + 1.0) <= DP_STATES else by_highs
    fixed[open_rows] = solve(value, problem.kind, problem.count, room)
    return fixed if total(problem, fixed) >= worth - 1e-12 else pick
