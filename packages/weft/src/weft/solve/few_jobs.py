"""The steps of a multiple-choice knapsack at given prices; those of a few jobs are compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.native import compiled
from weft.solve.exact import fill_grid
from weft.solve.prices import add_tops

Ints = NDArray[np.intp]
FEW = 24  # jobs up to which the compiled steps are quicker
NONE = -1
EPS = 1e-9


@frozen
class ChoiceProblem:
    """Worth of each size to each job, and the devices that it takes.

    `value[i, j]` is that of giving job i size j (-inf: not allowed), which takes `count[j]`
    GPUs of kind `kind[j]`; nothing at all is worth 0.
    """

    value: Floats
    kind: Ints
    count: Floats
    capacity: Floats


def as_problem(value: Floats, kind: Ints, count: Floats, capacity: Floats) -> ChoiceProblem:
    """A problem of any numbers, in floats; ValueError where a repair of it would not end."""
    values, counts, capacities = (np.asarray(x, dtype=float) for x in (value, count, capacity))
    if not (
        np.isfinite(capacities).all()
        and (capacities >= -EPS).all()
        and np.isfinite(counts).all()
        and (counts >= 0.0).all()
        and (values < np.inf).all()
    ):
        raise ValueError("expected finite capacities and sizes of at least 0")
    return ChoiceProblem(values, kind, counts, capacities)


def as_prices(prices: Floats) -> Floats:
    """Prices in floats; ValueError where one is not finite."""
    numbers = np.asarray(prices, dtype=float)
    if not np.isfinite(numbers).all():
        raise ValueError("expected finite prices")
    return numbers


@compiled
def take_freely(value: Floats, kind: Ints, count: Floats, capacity: Floats) -> list[int] | None:
    """Return the best size of each job if all of them fit together, else None."""
    problem = as_problem(value, kind, count, capacity)
    pick = best_at(problem, np.zeros(len(capacity)))
    return pick.tolist() if fits(problem, pick) else None


@compiled
def take_at_prices(
    value: Floats, kind: Ints, count: Floats, capacity: Floats, prices: Floats, passes: int
) -> tuple[list[int], float]:
    """Return choices at given prices that fit, and the sum of what they leave to jobs."""
    problem = as_problem(value, kind, count, capacity)
    prices = as_prices(prices)
    pick = repair(problem, best_at(problem, prices), prices, passes)
    return pick.tolist(), add_tops(problem.value, kind, problem.count, prices)


@compiled
def close_exactly(
    value: Floats,
    kind: Ints,
    count: Floats,
    capacity: Floats,
    prices: Floats,
    slack: float,
    states: float,
) -> list[int] | None:
    """The best sizes that a bound with this slack leaves to jobs.

    None where a search has more than that many states; nothing if there is none to be done.
    """
    problem = as_problem(value, kind, count, capacity)
    fixed, open_rows, left = leave_open(problem, as_prices(prices), slack)
    room = problem.capacity - used(problem, fixed)
    if (room < -EPS).any() or not len(open_rows):
        return []
    if np.prod(room + 1.0) > states:
        return None
    fixed[open_rows] = fill_grid(left[open_rows], kind, problem.count, room)
    return [int(size) for size in fixed]


@compiled
def add_up(value: Floats, pick: Ints) -> float:
    """Return the worth of all chosen sizes."""
    rows = np.flatnonzero(pick >= 0)
    return float(value[rows, pick[rows]].sum())


def best_at(problem: ChoiceProblem, prices: Floats) -> Ints:
    """Return each job's choice at given prices; ties go to the earlier size, and to nothing."""
    net = problem.value - (prices[problem.kind] * problem.count)[None, :]
    pick = net.argmax(axis=1)
    return np.where(net[np.arange(len(pick)), pick] > 0.0, pick, NONE)


def total(problem: ChoiceProblem, pick: Ints) -> float:
    """Return the worth of a choice."""
    return add_up(problem.value, pick)


def used(problem: ChoiceProblem, pick: Ints) -> Floats:
    """GPUs of each kind that a choice takes."""
    taken = pick[pick >= 0]
    weights = problem.count[taken]
    total_by_kind = np.bincount(problem.kind[taken], weights, len(problem.capacity))
    return np.asarray(total_by_kind, dtype=float)


def fits(problem: ChoiceProblem, pick: Ints) -> bool:
    """Return true if a choice keeps within every capacity."""
    return bool((used(problem, pick) <= problem.capacity + EPS).all())


def repair(problem: ChoiceProblem, pick: Ints, prices: Floats, passes: int) -> Ints:
    """Shed what does not fit at the least loss a GPU, then give what is left to the best gain."""
    if not (problem.capacity >= -EPS).all() or np.isinf(problem.capacity).any():
        raise ValueError(f"capacities are {problem.capacity}, expected finite ones of at least 0")
    pick = pick.copy()
    room = problem.capacity - used(problem, pick)
    left = 1 + len(pick) * (len(problem.count) + 1)  # a job goes to less each time
    while (room < -EPS).any():
        if not left:
            raise ValueError("values and prices are too far apart to compare")
        left -= 1
        _shed(problem, pick, room, int(np.argmin(room)), prices)
    for _ in range(passes):
        if not _fill(problem, pick, room):
            break
    return pick


def _shed(problem: ChoiceProblem, pick: Ints, room: Floats, k: int, prices: Floats) -> None:
    """One skip the jobs on kind `k`, those that lose least for a freed GPU first."""
    rows = np.flatnonzero((pick >= 0) & (problem.kind[pick] == k))
    now = pick[rows]
    net = problem.value[rows] - (prices[problem.kind] * problem.count)[None, :]
    net = np.concatenate([net, np.zeros((len(rows), 1))], axis=1)
    still = np.append(np.where(problem.kind == k, problem.count, 0.0), 0.0)
    freed = problem.count[now][:, None] - still[None, :]
    full = (problem.kind != k) & (problem.count > room[problem.kind] + EPS)
    loss = net[np.arange(len(rows)), now][:, None] - net
    useful = np.minimum(np.maximum(freed, EPS), max(-float(room[k]), 1.0))
    per_gpu = np.where((freed > 0.0) & ~np.append(full, False)[None, :], loss / useful, np.inf)
    size = per_gpu.argmin(axis=1)
    cost = per_gpu[np.arange(len(rows)), size]
    for at in np.argsort(cost, kind="stable"):
        if room[k] >= -EPS or cost[at] == np.inf:
            return  # enough is free, or the rest hold nothing that they could free
        to = int(size[at]) if size[at] < len(problem.count) else NONE
        if to >= 0 and problem.kind[to] != k and problem.count[to] > room[problem.kind[to]]:
            return  # another kind has filled up meanwhile: choose again
        _move(problem, pick, room, int(rows[at]), to)


def _fill(problem: ChoiceProblem, pick: Ints, room: Floats) -> bool:
    """One skip the jobs, those that gain most for a GPU first; whether any moved."""
    held = np.where(pick >= 0, problem.count[pick], 0.0)
    own = np.where(pick >= 0, problem.kind[pick], -1)
    worth = np.where(pick >= 0, problem.value[np.arange(len(pick)), pick], 0.0)
    same = own[:, None] == problem.kind[None, :]
    extra = problem.count[None, :] - np.where(same, held[:, None], 0.0)
    gain = problem.value - worth[:, None]
    open_ = (extra <= room[problem.kind][None, :] + EPS) & (gain > 1e-12)
    density = np.where(open_, gain / np.maximum(extra, 1e-3), -np.inf)
    size = density.argmax(axis=1)
    best = density[np.arange(len(pick)), size]
    moved = False
    for row in np.argsort(-best, kind="stable"):
        if best[row] == -np.inf:
            break
        to = int(size[row])
        if extra[row, to] <= room[problem.kind[to]] + EPS:
            _move(problem, pick, room, int(row), to)
            moved = True
    return moved


def _move(problem: ChoiceProblem, pick: Ints, room: Floats, row: int, size: int) -> None:
    if pick[row] >= 0:
        room[problem.kind[pick[row]]] += problem.count[pick[row]]
    pick[row] = size
    if size >= 0:
        room[problem.kind[size]] -= problem.count[size]


def leave_open(problem: ChoiceProblem, prices: Floats, slack: float) -> tuple[Ints, Ints, Floats]:
    """Divide jobs by a bound with this slack: those that are settled and those left open.

    The sizes that it settles, the rows that it leaves several, and what is left to each row.
    """
    net = problem.value - (prices[problem.kind] * problem.count)[None, :]
    top = np.maximum(net.max(axis=1), 0.0)
    alive = top[:, None] - net <= slack
    open_rows = np.flatnonzero(alive.sum(axis=1) + (top <= slack) > 1)
    fixed = np.where(alive.any(axis=1), alive.argmax(axis=1), NONE)
    fixed[open_rows] = NONE
    return fixed, open_rows, np.where(alive, problem.value, -np.inf)
