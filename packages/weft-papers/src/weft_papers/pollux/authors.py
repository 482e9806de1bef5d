"""Pollux as the authors' code has it (Qiao et al., OSDI 2021): NSGA-II with their operators.

It is less greedy than ours. Parents are drawn evenly, and of two the one that beats the other in
both fitness and utility breeds, else the lonelier one. Nine pairs in ten are crossed. Every entry
of a state is drawn again on its own, and children are bred until there are enough new ones. Fronts
and crowding are those of Deb et al., IEEE Transactions on Evolutionary Computation 6(2), 2002.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from weft.core.model.job import JobId
from weft.core.plan.about import About, Assumes
from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft_papers.pollux.genetic import CUT, RESET, THIN, Counts, Matrix, count_replicas, repair
from weft_papers.pollux.machines import MachineParts
from weft_papers.pollux.policy import Pollux, PolluxMemory

CROSSED = 0.9
BROODS = 10  # a generation, if new states are rare; the authors give up after 100

GoalsOf = Callable[[Counts, Floats], Floats]


@dataclass(frozen=True)
class AuthorsPollux(Pollux):
    """The search of the authors: a Pareto set of fitness and utility, from the last one on.

    It runs for all its generations. A node on which jobs that span nodes meet is cleared for the
    first of them. Jobs and beliefs fit one model over all kinds, and stop early.
    """

    _tie, _clear = 0.0, True

    @property
    def about(self) -> About:
        """Jobs and beliefs do not tell kinds apart."""
        return replace(super().about, assumes=Assumes.ONE_KIND)

    def _recall(
        self, memory: object, jobs: tuple[JobId, ...], parts: tuple[str, ...]
    ) -> Counts | None:
        """The first of the jobs that are still there gets the row of the first of them, and so on.

        The authors' code loses track of jobs whose precedence changed.
        """
        if isinstance(memory, PolluxMemory):
            stay = [job for job in jobs if job in set(memory.jobs)]
            rows = iter(stay)
            renamed = (next(rows) if job in set(stay) else job for job in memory.jobs)
            memory = replace(memory, jobs=tuple(renamed))
        return super()._recall(memory, jobs, parts)

    def _search(
        self,
        matrix: Matrix,
        machines: MachineParts,
        last: Counts | None,
        rng: np.random.Generator,
        values: Floats,
    ) -> tuple[Counts, int]:
        """The Pareto set, and which of it is best."""
        bred = search(
            matrix,
            matrix.held[:, None] if last is None else last,
            rng,
            Goals(self.p, values, machines.capacity),
            population=self.population,
            generations=self.generations,
        )
        return bred.states, int(bred.goals[0].argmax())


@dataclass(frozen=True, slots=True)
class Bred:
    """States, two goals of each, numbers that tell them apart, and how lonely they are."""

    states: Counts
    goals: Floats
    mark: Floats
    far: Floats

    def select(self, which: Rows) -> Bred:
        """Some of the individuals."""
        return Bred(
            self.states.take(which, axis=1), self.goals[:, which], self.mark[which], self.far[which]
        )


def search(
    matrix: Matrix,
    seeds: Counts,
    rng: np.random.Generator,
    goals_of: GoalsOf,
    *,
    population: int = 100,
    generations: int = 100,
) -> Bred:
    """The states that nothing beats after that many generations, the seeds being the first."""
    bred = _measure(matrix, repair(matrix, seeds.copy(), rng), goals_of)
    bred = _survive(bred.select(_new(bred.mark, bred.mark[:0])), population, rng)
    for _ in range(generations - 1):
        children = _children(matrix, bred, population, rng, goals_of)
        if not len(children.mark):
            break
        bred = _survive(_join(bred, children), population, rng)
    return bred.select(np.flatnonzero(fronts(bred.goals) == 0))


def _measure(matrix: Matrix, states: Counts, goals_of: GoalsOf) -> Bred:
    worth, mark = matrix.score_rows(states)
    goals = goals_of(states, worth.sum(axis=0))
    return Bred(states, goals, mark, np.zeros(len(mark)))


def _join(bred: Bred, other: Bred) -> Bred:
    return Bred(
        np.concatenate([bred.states, other.states], axis=1),
        np.concatenate([bred.goals, other.goals], axis=1),
        np.concatenate([bred.mark, other.mark]),
        np.concatenate([bred.far, other.far]),
    )


def _new(mark: Floats, known: Floats) -> Rows:
    """The first of each state that is not known yet, in order."""
    first = np.unique(mark, return_index=True)[1]
    return np.sort(first[~np.isin(mark[first], known)])


def _survive(bred: Bred, count: int, rng: np.random.Generator) -> Bred:
    """The first fronts, and of the one that does not fit the loneliest."""
    rank = fronts(bred.goals)
    far = compute_crowding(bred.goals, rank)
    order = np.lexsort((rng.random(len(rank)), -far, rank))[:count]
    return Bred(bred.states, bred.goals, bred.mark, far).select(order)


def _children(
    matrix: Matrix, parents: Bred, count: int, rng: np.random.Generator, goals_of: GoalsOf
) -> Bred:
    """`count` new states, or as many as could be bred."""
    children = parents.select(np.arange(0))
    for _ in range(BROODS):
        missing = count - len(children.mark)
        if not missing:
            break
        bred = _cross(parents.states, _parents(parents, (missing + 1) // 2, rng), rng)
        brood = repair(matrix, _mutate(matrix, bred, rng), rng)
        new = _measure(matrix, brood, goals_of)
        known = np.concatenate([parents.mark, children.mark])
        children = _join(children, new.select(_new(new.mark, known)[:missing]))
    return children


def _parents(bred: Bred, pairs: int, rng: np.random.Generator) -> Rows:
    """Winners of tournaments of two, two x pairs; every state takes part about as often."""
    size = len(bred.mark)
    draws = -(-4 * pairs // size)
    drawn = rng.permuted(np.tile(np.arange(size), (draws, 1)), axis=1).ravel()
    first, other = drawn[: 4 * pairs].reshape(-1, 2).T
    lead = np.sign(bred.goals[:, first] - bred.goals[:, other])
    beats = np.where((lead >= 0).all(axis=0), lead.max(axis=0), 0.0)
    beats += np.where((lead <= 0).all(axis=0), lead.min(axis=0), 0.0)
    lonelier = (bred.far[first] > bred.far[other]) * 2.0 - 1.0
    lonelier[bred.far[first] == bred.far[other]] = 0.0
    coin = rng.random(len(first)) - 0.5
    verdict = np.where(beats != 0, beats, np.where(lonelier != 0, lonelier, coin))
    return np.where(verdict > 0, first, other).reshape(-1, 2).T


def _cross(states: Counts, parents: Rows, rng: np.random.Generator) -> Counts:
    """Two children of each pair, which swap the rows before a random job, or do not."""
    jobs, pairs = len(states), parents.shape[1]
    point = rng.integers(jobs, size=pairs) * (rng.random(pairs) < CROSSED)
    swap = np.arange(jobs)[:, None] < point
    source = np.concatenate([np.where(swap, *parents[::-1]), np.where(swap, *parents)], axis=1)
    flat = states.reshape(-1, states.shape[2])
    children: Counts = flat.take(source + np.arange(jobs)[:, None] * states.shape[1], axis=0)
    return children


def _mutate(matrix: Matrix, states: Counts, rng: np.random.Generator) -> Counts:
    """Rows go back to what is held, entries are lost, others on nodes with room grow; in place."""
    reset, thin = rng.random((2, *states.shape[:2]), dtype=np.float32)
    job, state = np.nonzero(reset < RESET)
    states[job, state] = matrix.held[job]
    job, state = np.nonzero(thin < THIN)
    rows = states[job, state]
    states[job, state] = rows * (rng.random(rows.shape, dtype=np.float32) >= CUT)
    present = states > 0
    room = (states.sum(axis=0) < matrix.capacity).astype(np.float32)
    some = room / np.float32(len(states))
    own = room / np.maximum(np.count_nonzero(present, axis=0), 1).astype(np.float32)
    chance = np.where(present, some + own - some * own, some)
    job, state, node = np.nonzero(rng.random(states.shape, dtype=np.float32) < chance)
    now = states[job, state, node]
    span = matrix.capacity[node] - now + 1
    states[job, state, node] = now + np.floor(rng.random(len(now), dtype=np.float32) * span)
    return states


def utility(values: Floats, capacity: Counts, states: Counts) -> Floats:
    """The average part of ideal scaling on the nodes in use, of each of jobs x states x nodes."""
    total = count_replicas(states).astype(np.intp)
    spread = (np.count_nonzero(states, axis=2) > 1).astype(np.intp)
    speed = values[np.arange(len(states))[:, None], spread, total].sum(axis=0)
    active = (states.sum(axis=0) > 0) @ capacity
    shares: Floats = speed / np.maximum(active, 1.0)
    return shares


@dataclass(frozen=True, slots=True)
class Goals:
    """Goals of a state: the power mean with exponent `p`, and utility; more is better."""

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
    """Return how far apart the neighbours of each state on its front are; infinite at the ends.

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
    """Return the crowding of states that all differ, front by front along the first goal."""
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
