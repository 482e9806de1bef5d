"""The search of the authors' code: NSGA-II with their children and their mutation.

It is less greedy than ours. Parents are drawn evenly, and of two the one that beats the other in
both fitness and utility breeds, else the lonelier one. Nine pairs in ten are crossed. Every entry
of a state is drawn anew on its own, and children are bred until there are enough new ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.core.state.table import Floats, Rows
from weft.frozen import frozen
from weft.policies.pollux.pareto import compute_crowding, fronts
from weft.solve.genetic import CUT, RESET, THIN, Counts, Matrix, repair

CROSSED = 0.9
BROODS = 10  # a generation, if new states are rare; the authors give up after 100

GoalsOf = Callable[[Counts, Floats], Floats]


@frozen
class Bred:
    """States, two goals of each, numbers that tell them apart, and how lonely they are."""

    states: Counts
    goals: Floats
    mark: Floats
    far: Floats

    def take(self, which: Rows) -> Bred:
        """Some of the states."""
        return Bred(
            self.states.take(which, axis=1),
            self.goals[:, which],
            self.mark[which],
            self.far[which],
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
    """The states that nothing beats after so many generations, the seeds being the first."""
    bred = _measure(matrix, repair(matrix, seeds.copy(), rng), goals_of)
    bred = _survive(bred.take(_new(bred.mark, bred.mark[:0])), population, rng)
    for _ in range(generations - 1):
        children = _children(matrix, bred, population, rng, goals_of)
        if not len(children.mark):
            break
        bred = _survive(_join(bred, children), population, rng)
    return bred.take(np.flatnonzero(fronts(bred.goals) == 0))


def _measure(matrix: Matrix, states: Counts, goals_of: GoalsOf) -> Bred:
    worth, mark = matrix.rows(states)
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
    return Bred(bred.states, bred.goals, bred.mark, far).take(order)


def _children(
    matrix: Matrix, parents: Bred, count: int, rng: np.random.Generator, goals_of: GoalsOf
) -> Bred:
    """`count` new states, or as many as could be bred."""
    children = parents.take(np.arange(0))
    for _ in range(BROODS):
        missing = count - len(children.mark)
        if not missing:
            break
        bred = _cross(parents.states, _parents(parents, (missing + 1) // 2, rng), rng)
        brood = repair(matrix, _mutate(matrix, bred, rng), rng)
        new = _measure(matrix, brood, goals_of)
        known = np.concatenate([parents.mark, children.mark])
        children = _join(children, new.take(_new(new.mark, known)[:missing]))
    return children


def _parents(bred: Bred, pairs: int, rng: np.random.Generator) -> Rows:
    """Winners of tournaments of two, two x pairs; everybody takes part about as often."""
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
