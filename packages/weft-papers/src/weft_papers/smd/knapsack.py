"""Admission of jobs and their sizes: a knapsack of several resources, one choice per job.

The scheme of Frieze and Clarke (1984): a few jobs are fixed in, whatever is worth more than the
least of them is left out, the rest is a linear program whose corner is rounded down; at most one
job a resource is lost by that. Gaps are then filled by worth for each part of the room. Of all
sets of jobs to fix only those are tried that may still beat the best known: the duals of the first
program bound them all. Up to `SMALL` choices are also solved to the optimum.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.solve.linear_program import Sparse, maximise

TINY = 1e-9
BUDGET = 16
SMALL = 60


@frozen
class KnapsackItems:
    """Choices: whose they are, what they are worth, and what they take (choices x resources)."""

    owner: Rows
    worth: Floats
    need: Floats

    def __len__(self) -> int:
        return len(self.worth)

    def kept(self, keep: Bools) -> KnapsackItems:
        """Some of them."""
        return KnapsackItems(self.owner[keep], self.worth[keep], self.need[keep])


def choose(
    offers: KnapsackItems, room: Floats, *, fixed: int = 1, budget: int | None = BUDGET
) -> list[int]:
    """The choices taken, at most one an owner, within the room.

    It is the optimum of up to `SMALL` choices, else what `approximate` finds.
    """
    room = np.asarray(room, dtype=float)
    able = (offers.worth > 0.0) & (offers.need <= room + TINY).all(axis=1)
    names = np.flatnonzero(able)
    if not len(names):
        return []
    usable = offers.kept(able)
    # Decisions do not depend on the unit of worth, and solvers like numbers about 1.
    usable = KnapsackItems(usable.owner, usable.worth / usable.worth.max(), usable.need)
    best = approximate(usable, room, fixed, budget)
    if len(usable) <= SMALL:
        best = max(best, _optimum(usable, room), key=lambda chosen: usable.worth[chosen].sum())
    return [int(names[i]) for i in sorted(best)]


def _optimum(offers: KnapsackItems, room: Floats) -> list[int]:
    """The best choices, by a program in whole numbers."""
    owners, owner = np.unique(offers.owner, return_inverse=True)
    once = np.zeros((len(owners), len(offers)))
    once[owner, np.arange(len(offers))] = 1.0
    matrix = Sparse.of(np.concatenate([offers.need.T, once]))
    limits = np.concatenate([room, np.ones(len(owners))])
    optimum = maximise(offers.worth, matrix, limits, high=np.ones(len(offers)), whole=True)
    return [int(i) for i in np.flatnonzero(optimum.x > 0.5)]


def greedy(offers: KnapsackItems, room: Floats, taken: list[int] | None = None) -> list[int]:
    """Whatever still fits beside what is taken, by worth for each part of the room it takes."""
    chosen = list(taken or ())
    left = room - offers.need[chosen].sum(axis=0)
    parts = np.divide(offers.need, room, out=np.zeros(offers.need.shape), where=room > 0.0)
    density = offers.worth / np.maximum(parts.sum(axis=1), TINY)
    owned = np.isin(offers.owner, offers.owner[chosen])
    open_ = ~owned & (offers.need <= left + TINY).all(axis=1)
    seen: set[int] = set()
    for i in np.flatnonzero(open_)[np.argsort(-density[open_], kind="stable")].tolist():
        owner = int(offers.owner[i])
        if owner not in seen and (offers.need[i] <= left + TINY).all():
            seen.add(owner)
            chosen.append(i)
            left = left - offers.need[i]
    return chosen


class _Problem:
    """The choices that fit, with what the first linear program says about them."""

    def __init__(self, offers: KnapsackItems, room: Floats) -> None:
        self.offers, self.room = offers, room
        x, duals = _solve(offers, room)
        self.root = x
        self.price = np.maximum(duals, 0.0)
        self.gain = offers.worth - offers.need @ self.price
        self.best_gain = np.zeros(int(offers.owner.max()) + 1)
        np.maximum.at(self.best_gain, offers.owner, self.gain)
        self.bound = float(self.price @ room + self.best_gain.sum())

    def value(self, chosen: list[int]) -> float:
        return float(self.offers.worth[chosen].sum())

    def bound_with(self, fixed: tuple[int, ...]) -> float:
        """No selection with these fixed in, and nothing worth more beside them, is worth more."""
        offers, inside = self.offers, list(fixed)
        left = self.room - offers.need[inside].sum(axis=0)
        if (left < -TINY).any():
            return -np.inf
        gains = np.zeros(len(self.best_gain))
        beside = offers.worth <= offers.worth[inside].min()
        np.maximum.at(gains, offers.owner[beside], self.gain[beside])
        gains[offers.owner[inside]] = 0.0
        return float(offers.worth[inside].sum() + self.price @ left + gains.sum())

    def single_bounds(self) -> Floats:
        """`bound_with` of every single choice, in one pass from the least worth upwards."""
        offers = self.offers
        order = np.argsort(offers.worth, kind="stable")
        sums, own = np.zeros(len(offers)), np.zeros(len(offers))
        gains, total = np.zeros(len(self.best_gain)), 0.0
        values, owners = self.gain.tolist(), offers.owner.tolist()
        worth, start = offers.worth[order].tolist(), 0
        for at in range(len(order)):
            i = int(order[at])
            more = values[i] - gains[owners[i]]
            if more > 0.0:
                gains[owners[i]] += more
                total += more
            if at + 1 == len(order) or worth[at + 1] > worth[at]:
                level = order[start : at + 1]
                sums[level] = total
                own[level] = gains[offers.owner[level]]
                start = at + 1
        rest = (self.room - offers.need) @ self.price
        return np.asarray(offers.worth + rest + sums - own)

    def useful(self, incumbent: float) -> Bools:
        """Choices with which the incumbent may still be beaten."""
        with_it = self.bound - self.best_gain[self.offers.owner] + self.gain
        return np.asarray(with_it >= incumbent - TINY)


def approximate(offers: KnapsackItems, room: Floats, fixed: int, budget: int | None) -> list[int]:
    """The best found by fixing up to `fixed` jobs in at a time; each choice must fit alone.

    With `budget` None every set that may win is tried, and what is found is worth at least
    1 - R / (fixed + 1) of the optimum. Always it is worth no less than the greedy, the best single
    job, and so 1 / (R + 1) of the optimum.
    """
    problem = _Problem(offers, room)
    best = greedy(offers, room, _round_down(problem.root))
    for other in (greedy(offers, room), [int(offers.worth.argmax())]):
        other = greedy(offers, room, other)
        if problem.value(other) > problem.value(best) + TINY:
            best = other
    for tried, (bound, inside) in enumerate(_sets(problem, fixed, problem.value(best))):
        if bound <= problem.value(best) + TINY or (budget is not None and tried >= budget):
            break
        candidate = _with_fixed(problem, inside, problem.value(best))
        if problem.value(candidate) > problem.value(best) + TINY:
            best = candidate
    return best


def _sets(problem: _Problem, fixed: int, incumbent: float) -> list[tuple[float, tuple[int, ...]]]:
    """Sets of choices to fix in that may beat the incumbent, the most promising first."""
    singles = problem.single_bounds()
    sets: list[tuple[float, tuple[int, ...]]] = [
        (float(singles[i]), (int(i),)) for i in np.flatnonzero(singles > incumbent + TINY).tolist()
    ]
    if fixed == 0:
        return []
    owner = problem.offers.owner
    for size in range(2, fixed + 1):
        for inside in combinations(range(len(problem.offers)), size):
            if len({int(owner[i]) for i in inside}) == size:
                bound = problem.bound_with(inside)
                if bound > incumbent + TINY:
                    sets.append((bound, inside))
    return sorted(sets, key=lambda bounded: -bounded[0])


def _with_fixed(problem: _Problem, inside: tuple[int, ...], incumbent: float) -> list[int]:
    offers, chosen = problem.offers, list(inside)
    beside = offers.worth <= offers.worth[chosen].min()
    beside &= ~np.isin(offers.owner, offers.owner[chosen]) & problem.useful(incumbent)
    left = problem.room - offers.need[chosen].sum(axis=0)
    beside &= (offers.need <= left + TINY).all(axis=1)
    if beside.any():
        x, _ = _solve(offers.kept(beside), left)
        chosen += np.flatnonzero(beside)[_round_down(x)].tolist()
    return greedy(offers, problem.room, chosen)


def _round_down(x: Floats) -> list[int]:
    whole: list[int] = np.flatnonzero(x >= 1.0 - 1e-7).tolist()
    return whole


def _solve(offers: KnapsackItems, room: Floats) -> tuple[Floats, Floats]:
    """The linear program over parts of choices, at most one whole an owner; prices of resources.

    Each resource is counted in parts of the room there is.
    """
    count = room > 0.0
    scale = np.where(count, room, 1.0)
    rows, owners = len(room), np.unique(offers.owner, return_inverse=True)[1].reshape(-1)
    size = len(offers)
    several = np.bincount(owners)[owners] > 1
    columns = np.arange(size)
    need = Sparse.of((offers.need / scale).T)
    ones = Sparse(
        owners[several],
        columns[several],
        np.ones(int(several.sum())),
        (int(owners.max()) + 1, size),
    )
    limits = np.concatenate([count.astype(float), np.ones(ones.shape[0])])
    optimum = maximise(offers.worth, need.above(ones), limits, high=np.ones(size))
    return optimum.x, optimum.duals[:rows] / scale
