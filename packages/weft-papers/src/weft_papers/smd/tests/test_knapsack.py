"""The outer problem against HiGHS on small instances, and its invariants on all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.state.cells import Floats
from weft.solve.linear_program import Sparse, maximise
from weft_papers.smd.knapsack import BUDGET, KnapsackItems, approximate, choose, greedy


def optimum(offers: KnapsackItems, room: Floats, *, whole: bool = True) -> float:
    owners = int(offers.owner.max()) + 1
    one_each = np.zeros((owners, len(offers)))
    one_each[offers.owner, np.arange(len(offers))] = 1.0
    matrix = Sparse.of(np.concatenate([offers.need.T, one_each]))
    limits = np.concatenate([room, np.ones(owners)])
    return maximise(offers.worth, matrix, limits, high=np.ones(len(offers)), whole=whole).value


@st.composite
def instances(draw: Any, jobs: int = 7, most_choices: int = 3) -> tuple[KnapsackItems, Floats]:
    resources = draw(st.integers(1, 4))
    owner, worth, need = [], [], []
    for job in range(draw(st.integers(1, jobs))):
        for _ in range(draw(st.integers(1, most_choices))):
            owner.append(job)
            worth.append(draw(st.integers(1, 100)) / 10)
            need.append([draw(st.integers(0, 10)) for _ in range(resources)])
    room = np.array([float(draw(st.integers(1, 25))) for _ in range(resources)])
    return KnapsackItems(np.array(owner), np.array(worth), np.array(need, dtype=float)), room


@examples(60)
@given(instances())
def test_it_is_worth_a_part_of_the_optimum_and_no_less_than_the_simple_ways(
    instance: tuple[KnapsackItems, Floats],
) -> None:
    offers, room = instance

    chosen = choose(offers, room)

    value, best = offers.worth[chosen].sum(), optimum(offers, room)
    fits = (offers.need <= room + 1e-9).all(axis=1)
    assert (offers.need[chosen].sum(axis=0) <= room + 1e-6).all()
    assert len(set(offers.owner[chosen].tolist())) == len(chosen)
    assert value <= best + 1e-6
    assert value >= best / (len(room) + 1) - 1e-6
    assert value >= offers.worth[fits].max(initial=0.0) - 1e-9
    assert value >= offers.worth[greedy(offers, room)].sum() - 1e-9


@examples(40)
@given(instances())
def test_small_knapsacks_are_filled_to_the_optimum(instance: tuple[KnapsackItems, Floats]) -> None:
    offers, room = instance

    assert offers.worth[choose(offers, room)].sum() == pytest.approx(optimum(offers, room))


FOUND_BY_PAIRS = (
    (7.0, 7.0, 6.0, 3.0, 9.5, 2.0),
    ((1, 4), (5, 17), (3, 13), (4, 20), (1, 15), (3, 13)),
    (9, 36),
)
FOUND_BY_NEITHER = (
    (4.5, 3.0, 8.0, 6.5, 9.0, 5.5),
    ((5, 5), (5, 9), (1, 11), (5, 19), (2, 8), (2, 4)),
    (8, 43),
)


@pytest.mark.parametrize(
    ("case", "by_one", "by_two"), [(FOUND_BY_PAIRS, 22.5, 23.5), (FOUND_BY_NEITHER, 22.5, 22.5)]
)
@pytest.mark.parametrize(("fixed", "budget"), [(1, BUDGET), (2, None)])
def test_what_the_approximation_misses_is_found(
    case: tuple[Any, ...], by_one: float, by_two: float, fixed: int, budget: int | None
) -> None:
    worth, need, room = (np.array(numbers, dtype=float) for numbers in case)
    offers = KnapsackItems(np.arange(len(worth)), worth, need)

    chosen = choose(offers, room, fixed=fixed, budget=budget)

    alone = [worth[approximate(offers, room, *how)].sum() for how in ((1, BUDGET), (2, None))]
    assert alone == [by_one, by_two]
    assert worth[chosen].sum() == 23.5


@examples(25)
@given(instances(jobs=5, most_choices=2), st.integers(1, 4))
def test_fixing_more_jobs_keeps_the_bound_of_frieze_and_clarke(
    instance: tuple[KnapsackItems, Floats], fixed: int
) -> None:
    offers, room = instance

    fits = np.asarray((offers.need <= room).all(axis=1))
    offers = offers.kept(fits)
    chosen = approximate(offers, room, fixed, None) if fits.any() else []

    best = optimum(offers, room) if fits.any() else 0.0
    assert offers.worth[chosen].sum() >= (1.0 - len(room) / (fixed + 1)) * best - 1e-6


@examples(25)
@given(instances(), st.sampled_from((1e-9, 0.001, 3.0, 1e6)))
def test_the_unit_of_worth_changes_nothing(
    instance: tuple[KnapsackItems, Floats], unit: float
) -> None:
    offers, room = instance
    other = KnapsackItems(offers.owner, offers.worth * unit, offers.need)

    chosen, again = choose(offers, room), choose(other, room)

    # Equal values may be reached by other choices when rounding differs in the last digit.
    assert np.isclose(offers.worth[chosen].sum(), offers.worth[again].sum())


@pytest.mark.parametrize("unit", [1.0, 0.01])
def test_it_is_close_to_the_optimum_where_there_are_many_jobs(unit: float) -> None:
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(200), 3)
    need = np.repeat(rng.uniform(1, 8, (200, 4)), 3, 0) * np.tile([1, 0.5, 0.25], 200)[:, None]
    worth = np.repeat(rng.uniform(1, 10, 200), 3) * np.tile([1.0, 0.8, 0.5], 200)
    need *= unit * 20.0 / need.sum(axis=0)  # of a resource there may be less than one
    offers, room = KnapsackItems(owner, worth, need), need.sum(axis=0) * 0.05

    chosen = choose(offers, room)

    # The relaxation is above the optimum, and a thousand times sooner found.
    assert offers.worth[chosen].sum() >= 0.98 * optimum(offers, room, whole=False)


@pytest.mark.parametrize("room", [np.zeros(2), np.array([0.5, 40.0])])
def test_without_room_nothing_is_chosen(room: Floats) -> None:
    offers = KnapsackItems(np.array([0]), np.array([1.0]), np.array([[1.0, 1.0]]))

    assert choose(offers, room) == []
