"""Sizes and places together, by a genetic search over matrices of jobs and nodes (Pollux, 2021).

A state says how many replicas each job has on each node. Children are crossed from two parents
at a random job, mutated, and repaired, so that every state there is can be carried out. Arrays
are states x jobs x nodes; nothing loops over states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.core.table import Bools, Floats, Rows

States = NDArray[np.int16]

RESET = 0.1  # of rows go back to what they hold
THIN = 0.1  # of rows lose some of their nodes
CUT = 0.1  # of the nodes of such a row are lost


@dataclass(frozen=True)
class Matrix:
    """What may be chosen, jobs in order of precedence, and what it is worth.

    `held` is the state now. `least` and `most` bound the replicas of a job that runs, `nodes`
    the nodes it may use at once. `worth` is what a row adds to the score of a state: by job,
    whether the row differs from what is held, whether it is on several nodes, and replicas.
    """

    held: States
    capacity: States
    least: States
    most: States
    allowed: Bools
    pinned: Bools
    worth: Floats
    nodes: int = 16

    @property
    def shape(self) -> tuple[int, int]:
        """Jobs and nodes."""
        jobs, nodes = self.held.shape
        return jobs, nodes

    @cached_property
    def free_choice(self) -> bool:
        """Whether every job may use every node."""
        return bool(self.allowed.all())

    @cached_property
    def marks(self) -> Floats:
        """Numbers that tell states apart."""
        return np.random.default_rng(0).random(self.held.size)

    def score(self, states: States) -> Floats:
        """The sum of what each row is worth."""
        _, changes, places, sizes = self.worth.shape
        changed = (states != self.held).any(axis=2)
        spread = np.count_nonzero(states, axis=2) > 1
        index = np.arange(len(self.held)) * changes + changed
        index = (index * places + spread) * sizes + states.sum(axis=2)
        total: Floats = self.worth.reshape(-1)[index].sum(axis=1)
        return total


def evolve(
    matrix: Matrix,
    seeds: States,
    rng: np.random.Generator,
    *,
    population: int = 100,
    generations: int = 100,
    patience: int = 100,
) -> States:
    """The best states found from `seeds`, best first.

    The search ends early after `patience` generations without a better one.
    """
    states, score = _survivors(matrix, repair(matrix, seeds, rng), population)
    best, waited = score[0], 0
    for _ in range(generations):
        children = repair(matrix, mutate(matrix, cross(matrix, states, population, rng), rng), rng)
        states, score = _survivors(matrix, np.concatenate([states, children]), population)
        waited = waited + 1 if score[0] <= best else 0
        best = score[0]
        if waited >= patience:
            break
    return states


def _survivors(matrix: Matrix, states: States, population: int) -> tuple[States, Floats]:
    """The best different states, best first."""
    mark = states.reshape(len(states), -1) @ matrix.marks
    first = np.unique(mark, return_index=True)[1]
    score = matrix.score(states)[first]
    order = np.argsort(-score, kind="stable")[:population]
    return states[first[order]], score[order]


def cross(matrix: Matrix, states: States, count: int, rng: np.random.Generator) -> States:
    """Children of the winners of small tournaments; some rows go back to what is held.

    States come best first: the earlier of two wins.
    """
    jobs, _ = matrix.shape
    half = (count + 1) // 2
    one, other = rng.integers(len(states), size=(2, 2, half)).min(axis=0)[:, :, None]
    head = np.arange(jobs) < rng.integers(jobs, size=(half, 1))
    source = np.concatenate([np.where(head, one, other), np.where(head, other, one)])
    source[rng.random(source.shape) < RESET] = len(states)
    pool = np.concatenate([states, matrix.held[None]])
    children: States = pool[source, np.arange(jobs)]
    return children


def mutate(matrix: Matrix, states: States, rng: np.random.Generator) -> States:
    """Take replicas away here and there, and let jobs grow on nodes with room; in place."""
    thin = np.nonzero(rng.random(states.shape[:2]) < THIN)
    rows = states[thin]
    rows[rng.random(rows.shape) < CUT] = 0
    states[thin] = rows
    one, node = np.nonzero(states.sum(axis=1) < matrix.capacity)
    if not len(one):
        return states
    _grow(matrix, states, one, rng.integers(states.shape[1], size=len(one)), node, rng)
    present = states[one, :, node] > 0
    ticket = rng.random(present.shape) * present
    job = ticket.argmax(axis=1)
    some = ticket[np.arange(len(job)), job] > 0.0
    _grow(matrix, states, one[some], job[some], node[some], rng)
    return states


def _grow(
    matrix: Matrix,
    states: States,
    one: Rows,
    job: Rows,
    node: Rows,
    rng: np.random.Generator,
) -> None:
    """Draw entries anew between what they are and all of the node."""
    now = states[one, job, node]
    room = matrix.capacity[node] - now + 1
    states[one, job, node] = now + (rng.random(len(now)) * room).astype(states.dtype)


def repair(matrix: Matrix, states: States, rng: np.random.Generator) -> States:
    """Make every state one that can be carried out; in place."""
    if not matrix.free_choice:
        states *= matrix.allowed
    if matrix.pinned.any():
        states[:, matrix.pinned] = matrix.held[matrix.pinned]
    _part_spread_jobs(matrix, states)
    _cap_rows(matrix, states, rng)
    _fit_nodes(matrix, states)
    short = (total := states.sum(axis=2)) < matrix.least
    states[short & (total > 0)] = 0
    return states


def _part_spread_jobs(matrix: Matrix, states: States) -> None:
    """At most one job that spans nodes on any node: the first keeps it."""
    on = states > 0
    on &= (np.count_nonzero(on, axis=2) > 1)[:, :, None]
    bad = np.flatnonzero((np.count_nonzero(on, axis=1) > 1).any(axis=1))
    if len(bad):
        later = on[bad] & (on[bad].cumsum(axis=1, dtype=np.int16) > 1)
        later[:, matrix.pinned] = False
        states[bad] *= ~later


def _cap_rows(matrix: Matrix, states: States, rng: np.random.Generator) -> None:
    """No more replicas and nodes than a job may have; nodes lose theirs in random order."""
    one, job = np.nonzero(states.sum(axis=2) > matrix.most)
    if len(one):
        _cut(states, one, job, matrix.most[job], rng)
    if matrix.shape[1] > matrix.nodes:
        one, job = np.nonzero(np.count_nonzero(states, axis=2) > matrix.nodes)
        kept = (states[one, job] > 0).cumsum(axis=1) <= matrix.nodes
        states[one, job] *= kept


def _cut(states: States, one: Rows, job: Rows, most: States, rng: np.random.Generator) -> None:
    rows = states[one, job]
    shuffle = rng.random(rows.shape).argsort(axis=1)
    mixed = np.take_along_axis(rows, shuffle, axis=1).cumsum(axis=1, dtype=states.dtype)
    np.minimum(mixed, most[:, None], out=mixed)
    mixed[:, 1:] -= mixed[:, :-1].copy()
    np.put_along_axis(rows, shuffle, mixed, axis=1)
    states[one, job] = rows


def _fit_nodes(matrix: Matrix, states: States) -> None:
    """No more replicas on a node than it has GPUs: earlier jobs keep theirs."""
    one, node = np.nonzero(states.sum(axis=1) > matrix.capacity)
    if not len(one):
        return
    columns = states[one, :, node].cumsum(axis=1, dtype=states.dtype)
    np.minimum(columns, matrix.capacity[node][:, None], out=columns)
    columns[:, 1:] -= columns[:, :-1].copy()
    states[one, :, node] = columns
