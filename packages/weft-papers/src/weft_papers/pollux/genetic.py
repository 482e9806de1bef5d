"""Sizes and places together, by a genetic search over matrices of jobs and nodes (Pollux, 2021).

A state says how many replicas each job has on each node. Children are crossed from two parents
at a random job, mutated, and repaired, so that every state there is can be carried out. Nothing
loops over states: arrays are jobs x states x nodes, and of float32, so that sums over jobs and
over nodes both run at the speed of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen

Counts = NDArray[np.float32]

RESET = 0.1  # of rows go back to what they hold
THIN = 0.1  # of rows lose some of their nodes
CUT = 0.1  # of the nodes of such a row are lost


@dataclass(frozen=True)
class Matrix:
    """The choices of a search, jobs in order of precedence, and their worth.

    `held` is the state now, jobs x nodes. `least` and `most` bound the replicas of a job that
    runs, `nodes` the nodes it may use at once. Where jobs that span nodes meet on one, the first
    keeps it; with `clear` the jobs after the second lose it as well. `worth` is what a row
    adds to the score of a state: by job, whether the row differs from what is held, whether it is
    on several nodes, and replicas.
    """

    held: Counts
    capacity: Counts
    least: Counts
    most: Counts
    allowed: Bools
    pinned: Bools
    worth: Floats
    nodes: int = 16
    clear: bool = False

    @cached_property
    def free_choice(self) -> bool:
        """True if every job may use every node."""
        return bool(self.allowed.all())

    @cached_property
    def any_pinned(self) -> bool:
        """True if some job must stay as it is."""
        return bool(self.pinned.any())

    @cached_property
    def marks(self) -> Counts:
        """Columns that turn a row into its sum and two numbers that tell it from others."""
        drawn = np.random.default_rng(0).integers(1, 1 << 16, (self.held.shape[1], 2))
        return np.column_stack([np.ones(len(drawn)), drawn]).astype(np.float32)

    @cached_property
    def weights(self) -> Floats:
        """Numbers that turn the marks of rows into one of the state."""
        return np.random.default_rng(1).random((len(self.held), 2))

    @cached_property
    def bound(self) -> float:
        """A score that no state can beat: every job has what is best for it."""
        sizes = np.arange(self.worth.shape[3])
        fits = (sizes >= self.least[:, None]) & (sizes <= self.most[:, None]) | (sizes == 0)
        moved = np.where(fits[:, None], self.worth[:, 1], -np.inf).max(axis=(1, 2))
        stay = self.score_rows(self.held[:, None])[0][:, 0]
        return float(np.where(self.pinned, stay, np.maximum(stay, moved)).sum())

    def score_rows(self, states: Counts) -> tuple[Floats, Floats]:
        """Return the worth of each row, jobs x states, and a number that tells states apart."""
        _, changes, places, sizes = self.worth.shape
        sums = _multiply(states, self.marks)
        moved = (sums != _multiply(self.held, self.marks)[:, None]).any(axis=2)
        spread = count_replicas((states > 0).astype(np.float32)) > 1
        index = np.arange(len(states))[:, None] * changes + moved
        index = (index * places + spread) * sizes + sums[:, :, 0].astype(np.intp)
        mark = (sums[:, :, 1] * self.weights[:, :1] + sums[:, :, 2] * self.weights[:, 1:]).sum(
            axis=0
        )
        return self.worth.reshape(-1).take(index), mark


def count_replicas(states: Counts) -> Counts:
    """Jobs x states: replicas."""
    return _multiply(states, np.ones(states.shape[2], dtype=np.float32))


def _multiply(states: Counts, by: Counts) -> Counts:
    """Multiply small whole numbers; BLAS may note what it reads behind an array as invalid."""
    with np.errstate(invalid="ignore"):
        product: Counts = states @ by
    return product


@frozen
class Population:
    """States with their scores, and numbers that tell them apart."""

    states: Counts
    score: Floats
    mark: Floats

    def better(self, new: Population, count: int) -> Population:
        """The best `count` of these and new ones, each once; best first."""
        states = np.concatenate([self.states, new.states], axis=1)
        score = np.concatenate([self.score, new.score])
        mark = np.concatenate([self.mark, new.mark])
        first = np.unique(mark, return_index=True)[1]
        states, score, mark = states.take(first, axis=1), score[first], mark[first]
        best = np.argsort(-score, kind="stable")[:count]
        return Population(states.take(best, axis=1), score[best], mark[best])


def evolve(
    matrix: Matrix,
    seeds: Counts,
    rng: np.random.Generator,
    *,
    population: int = 100,
    generations: int = 100,
    patience: int = 100,
) -> Population:
    """The population that comes of `seeds`; the best survive and breed.

    The search ends early after `patience` generations without a higher score, and at once when
    every job has what is best for it.
    """
    fittest = measure(matrix, repair(matrix, seeds.copy(), rng))
    fittest = fittest.better(fittest, population)
    best, waited = fittest.score.max(), 0
    for _ in range(generations):
        if waited >= patience or best >= matrix.bound - 1e-12 * abs(matrix.bound):
            break
        children = mutate(matrix, cross_over(matrix, fittest.states, population, rng), rng)
        new = measure(matrix, repair(matrix, children, rng))
        waited = waited + 1 if new.score.max() <= best else 0
        best = max(best, new.score.max())
        fittest = fittest.better(new, population)
    return fittest


def measure(matrix: Matrix, states: Counts) -> Population:
    """States with what they are worth."""
    worth, mark = matrix.score_rows(states)
    return Population(states, worth.sum(axis=0), mark)


def cross_over(matrix: Matrix, states: Counts, count: int, rng: np.random.Generator) -> Counts:
    """Children of the winners of small tournaments; some rows go back to what is held.

    States come best first: the earlier of two wins.
    """
    jobs, half = len(states), (count + 1) // 2
    first, other = rng.integers(states.shape[1], size=(2, 2, half)).min(axis=0)
    job = np.arange(jobs)[:, None]
    head = job < rng.integers(jobs, size=half)
    source = np.concatenate([np.where(head, first, other), np.where(head, other, first)], axis=1)
    source[rng.random(source.shape, dtype=np.float32) < RESET] = states.shape[1]
    pool = np.concatenate([states, matrix.held[:, None]], axis=1)
    flat = pool.reshape(-1, pool.shape[2])
    children: Counts = flat.take(source + job * pool.shape[1], axis=0)
    return children


def mutate(matrix: Matrix, states: Counts, rng: np.random.Generator) -> Counts:
    """Take replicas away here and there, and let jobs grow on nodes with room; in place."""
    thin = np.nonzero(rng.random(states.shape[:2], dtype=np.float32) < THIN)
    rows = states[thin]
    states[thin] = rows * (rng.random(rows.shape, dtype=np.float32) >= CUT)
    state, node = np.nonzero(states.sum(axis=0) < matrix.capacity)
    if not len(state):
        return states
    _grow(matrix, states, rng.integers(len(states), size=len(state)), state, node, rng)
    present = states[:, state, node]
    ticket = rng.random(present.shape, dtype=np.float32) * (present > 0)
    job = ticket.argmax(axis=0)
    some = np.flatnonzero(ticket[job, np.arange(len(job))])
    _grow(matrix, states, job[some], state[some], node[some], rng)
    return states


def _grow(
    matrix: Matrix, states: Counts, job: Rows, state: Rows, node: Rows, rng: np.random.Generator
) -> None:
    """Draw entries again between what they are and all of the node."""
    now = states[job, state, node]
    room = matrix.capacity[node] - now + 1
    states[job, state, node] = now + np.floor(rng.random(len(now), dtype=np.float32) * room)


def repair(matrix: Matrix, states: Counts, rng: np.random.Generator) -> Counts:
    """Make every state one that can be carried out; in place."""
    if not matrix.free_choice:
        states *= matrix.allowed[:, None]
    if matrix.any_pinned:
        states[matrix.pinned] = matrix.held[matrix.pinned][:, None]
    _part_spread_jobs(matrix, states)
    _cap_rows(matrix, states, rng)
    _fit_nodes(matrix, states)
    total = count_replicas(states)
    job, state = np.nonzero((total < matrix.least[:, None]) & (total > 0))
    states[job, state] = 0
    return states


def _part_spread_jobs(matrix: Matrix, states: Counts) -> None:
    """At most one job that spans nodes on any node: the first keeps it."""
    on = (states > 0).astype(np.float32)
    on *= (count_replicas(on) > 1)[:, :, None]
    state, node = np.nonzero(on.sum(axis=0) > 1)
    if len(state):
        later = on[:, state, node] > 0
        if matrix.clear:
            later = later.cumsum(axis=0) > 1
        else:
            later[later.argmax(axis=0), np.arange(len(state))] = False
        later[matrix.pinned] = False
        states[:, state, node] *= ~later


def _cap_rows(matrix: Matrix, states: Counts, rng: np.random.Generator) -> None:
    """No more replicas and nodes than a job may have; nodes lose theirs in random order."""
    job, state = np.nonzero(count_replicas(states) > matrix.most[:, None])
    if len(job):
        _cut(states, job, state, matrix.most[job], rng)
    if states.shape[2] > matrix.nodes:
        job, state = np.nonzero(count_replicas((states > 0).astype(np.float32)) > matrix.nodes)
        states[job, state] *= (states[job, state] > 0).cumsum(axis=1) <= matrix.nodes


def _cut(states: Counts, job: Rows, state: Rows, most: Counts, rng: np.random.Generator) -> None:
    rows = states[job, state]
    shuffle = rng.random(rows.shape, dtype=np.float32).argsort(axis=1)
    mixed = np.take_along_axis(rows, shuffle, axis=1)
    np.put_along_axis(rows, shuffle, _first_come(mixed.T, most).T, axis=1)
    states[job, state] = rows


def _fit_nodes(matrix: Matrix, states: Counts) -> None:
    """No more replicas on a node than it has GPUs: earlier jobs keep theirs."""
    state, node = np.nonzero(states.sum(axis=0) > matrix.capacity)
    if len(state):
        states[:, state, node] = _first_come(states[:, state, node], matrix.capacity[node])


def _first_come(wants: Counts, limit: Counts) -> Counts:
    """Grant each its wish, from first to last, up to `limit` in total."""
    got: Counts = np.minimum(wants.cumsum(axis=0), limit)
    got[1:] -= got[:-1].copy()
    return got
