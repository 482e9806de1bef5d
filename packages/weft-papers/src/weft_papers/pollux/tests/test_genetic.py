"""The genetic search: every state can be carried out, and the search never loses the best."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.state.cells import Floats
from weft_papers.pollux.genetic import (
    Counts,
    Matrix,
    count_replicas,
    cross_over,
    evolve,
    mutate,
    repair,
)


def counts(*values: Any) -> Counts:
    return np.array(values, dtype=np.float32)


def linear(jobs: int, sizes: int, moved: float = 1.0) -> Floats:
    """Worth that grows with the square root of replicas; spread or moved rows are worth less."""
    each = np.sqrt(np.arange(sizes + 1.0))
    kept = np.stack([each, 0.9 * each])
    return np.tile(np.stack([kept, moved * kept]), (jobs, 1, 1, 1))


def matrix(held: Counts, capacity: Counts, **given_: Any) -> Matrix:
    jobs = len(held)
    fields: dict[str, Any] = {
        "least": np.ones(jobs, dtype=np.float32),
        "most": np.full(jobs, 8, dtype=np.float32),
        "allowed": np.ones(held.shape, dtype=bool),
        "pinned": np.zeros(jobs, dtype=bool),
        "worth": linear(jobs, int(max(8, capacity.sum()))),
    }
    return Matrix(held, capacity, **{**fields, **given_})


@st.composite
def problems(draw: Any) -> tuple[Matrix, int]:
    """A few jobs and nodes, some pinned, some choosy, some gangs."""
    jobs, nodes = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    capacity = rng.integers(1, 5, nodes).astype(np.float32)
    allowed = rng.random((jobs, nodes)) < 0.8
    least = rng.integers(1, 4, jobs).astype(np.float32)
    most = least + rng.integers(0, 6, jobs).astype(np.float32)
    loose = matrix(
        np.zeros((jobs, nodes), dtype=np.float32),
        capacity,
        least=least,
        most=most,
        allowed=allowed,
        nodes=draw(st.integers(2, 4)),
    )
    held = repair(loose, rng.integers(0, 5, (jobs, 1, nodes)).astype(np.float32), rng)[:, 0]
    pinned = (rng.random(jobs) < 0.3) & (held.sum(axis=1) > 0)
    order = np.argsort(~pinned, kind="stable")
    return matrix(
        held[order],
        capacity,
        least=least[order],
        most=most[order],
        allowed=allowed[order],
        pinned=pinned[order],
        nodes=loose.nodes,
        worth=linear(jobs, 24, 0.8),
    ), draw(st.integers(0, 999))


def check(problem: Matrix, states: Counts) -> None:
    total, on = count_replicas(states), states > 0
    spread = on & (on.sum(axis=2) > 1)[:, :, None]
    assert (states >= 0).all()
    assert (states == np.floor(states)).all()
    assert (states.sum(axis=0) <= problem.capacity).all()
    assert (spread.sum(axis=0) <= 1).all()
    assert (total <= problem.most[:, None]).all()
    assert ((total == 0) | (total >= problem.least[:, None])).all()
    assert (on.sum(axis=2) <= problem.nodes).all()
    assert not (on & ~problem.allowed[:, None]).any()
    assert (states[problem.pinned] == problem.held[problem.pinned][:, None]).all()


@given(problems())
def test_a_repaired_state_can_be_carried_out_and_is_not_repaired_again(
    case: tuple[Matrix, int],
) -> None:
    problem, seed = case
    rng = np.random.default_rng(seed)
    wild = rng.integers(0, 6, (len(problem.held), 40, len(problem.capacity))).astype(np.float32)

    states = repair(problem, wild, rng)

    check(problem, states)
    assert (repair(problem, states.copy(), rng) == states).all()


@given(problems())
def test_a_generation_of_children_can_be_carried_out(case: tuple[Matrix, int]) -> None:
    problem, seed = case
    rng = np.random.default_rng(seed)
    parents = np.repeat(problem.held[:, None], 10, axis=1)

    children = repair(problem, mutate(problem, cross_over(problem, parents, 30, rng), rng), rng)

    assert children.shape == (len(problem.held), 30, len(problem.capacity))
    check(problem, children)


@given(problems())
def test_the_search_never_loses_what_it_started_from(case: tuple[Matrix, int]) -> None:
    problem, seed = case
    start = problem.held[:, None]

    evolved = evolve(problem, start, np.random.default_rng(seed), population=20, generations=5)

    check(problem, evolved.states)
    scores = evolved.score
    assert (np.diff(scores) <= 0).all()
    assert problem.score_rows(start)[0].sum() <= scores[0] <= problem.bound + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_the_best_of_all_states(seed: int) -> None:
    problem = matrix(counts([2, 0], [0, 1], [0, 0]), counts(3, 3), worth=linear(3, 8, 0.7))
    every = np.array([*product(range(4), repeat=6)], dtype=np.float32)
    every = every.reshape(-1, 3, 2).transpose(1, 0, 2)
    sound = repair(problem, every.copy(), np.random.default_rng(0))
    best = problem.score_rows(sound)[0].sum(axis=0).max()

    evolved = evolve(problem, problem.held[:, None], np.random.default_rng(seed))

    assert evolved.score[0] == pytest.approx(best)


def test_the_first_of_two_spread_jobs_keeps_a_node() -> None:
    problem = matrix(counts([0, 0, 0], [0, 0, 0]), counts(4, 4, 4))
    both = counts([[2, 2, 0]], [[0, 2, 2]])

    states = repair(problem, both, np.random.default_rng(0))

    assert states[:, 0].tolist() == [[2, 2, 0], [0, 0, 2]]


def test_a_node_on_which_spread_jobs_meet_may_be_cleared_for_the_first() -> None:
    held = counts([0, 0, 0], [0, 0, 0], [0, 0, 0])
    states = counts([[2, 1, 0]], [[0, 1, 2]], [[0, 1, 0]])

    kept = repair(matrix(held, counts(4, 4, 4)), states.copy(), np.random.default_rng(0))
    cleared = repair(
        matrix(held, counts(4, 4, 4), clear=True), states.copy(), np.random.default_rng(0)
    )

    assert kept[:, 0].tolist() == [[2, 1, 0], [0, 0, 2], [0, 1, 0]]
    assert cleared[:, 0].tolist() == [[2, 1, 0], [0, 0, 2], [0, 0, 0]]


def test_earlier_jobs_keep_their_replicas_on_a_full_node() -> None:
    problem = matrix(counts([0], [0], [0]), counts(4))

    states = repair(problem, counts([[3]], [[3]], [[3]]), np.random.default_rng(0))

    assert states[:, 0, 0].tolist() == [3, 1, 0]


def test_the_search_ends_at_once_when_every_job_has_the_best() -> None:
    problem = matrix(counts([8]), counts(8), worth=linear(1, 8, 0.5))
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state

    evolved = evolve(problem, problem.held[:, None], rng)

    assert evolved.states[:, 0].tolist() == [[8]]
    assert rng.bit_generator.state == before


def test_the_same_numbers_give_the_same_states() -> None:
    problem = matrix(counts([0, 0], [0, 0], [0, 0]), counts(4, 4))

    first, other = (
        evolve(problem, problem.held[:, None], np.random.default_rng(7), generations=10)
        for _ in range(2)
    )

    assert (first.states == other.states).all()
