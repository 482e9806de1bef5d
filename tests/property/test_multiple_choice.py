"""One size a job within every capacity: against every choice there is, and against HiGHS."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.seeds import seeds

from weft.core.state.cells import Floats
from weft.solve.exact import by_dynamic_programming, by_highs
from weft.solve.few_jobs import NONE, ChoiceProblem, best_at, fits, repair, total, used
from weft.solve.multiple_choice import (
    PASSES,
    Answer,
    Ints,
    at_prices_of_few,
    at_prices_of_many,
    choose,
    close_gap_of_few,
    close_gap_of_many,
    dual_value,
)

KIND = np.array((0, 0, 0, 1, 1))
COUNT = np.array((1.0, 2.0, 4.0, 1.0, 2.0))

worths = st.one_of(
    st.integers(-20, 200).map(lambda hundredths: hundredths / 100.0), st.just(-np.inf)
)
rows = st.lists(worths, min_size=len(KIND), max_size=len(KIND))
problems = st.builds(
    lambda value, room: ChoiceProblem(np.array(value, dtype=float), KIND, COUNT, np.array(room)),
    st.lists(rows, min_size=1, max_size=4),
    st.tuples(st.integers(0, 8).map(float), st.integers(0, 4).map(float)),
)


def every_choice(problem: ChoiceProblem) -> float:
    """The most that any choice is worth."""
    options = [[NONE, *np.flatnonzero(np.isfinite(row)).tolist()] for row in problem.value]
    picks = (np.array(pick, dtype=np.intp) for pick in product(*options))
    return max(total(problem, pick) for pick in picks if fits(problem, pick))


def drawn(jobs: int, seed: int, room: tuple[float, ...] = (64.0, 48.0, 32.0)) -> ChoiceProblem:
    """A round of a scheduler like Sia: concave gains, three kinds, sizes to 32."""
    rng = np.random.default_rng(seed)
    sizes = np.array((1.0, 2.0, 4.0, 8.0, 16.0, 32.0))
    kind = np.repeat(np.arange(3), len(sizes))
    count = np.tile(sizes, 3)
    power = rng.uniform(0.3, 1.0, (jobs, 1))
    speed = rng.uniform(1.0, 5.0, (jobs, 3))[:, kind]
    level = speed * count[None, :] ** power
    value = 1.1 - (level / level.min(axis=1, keepdims=True)) ** -0.5
    value[rng.random(value.shape) < 0.2] = -np.inf
    return ChoiceProblem(value, kind, count, np.array(room))


def check(problem: ChoiceProblem, answer: Answer) -> None:
    assert fits(problem, answer.pick)
    assert answer.value == pytest.approx(total(problem, answer.pick))
    assert np.isfinite(answer.value)
    assert answer.bound >= answer.value - 1e-9


# ---- the best


@given(problems)
def test_a_choice_is_within_its_gap_of_the_best_of_all(problem: ChoiceProblem) -> None:
    best = every_choice(problem)

    answer = choose(problem, gap=1e-3)

    check(problem, answer)
    assert answer.bound >= best - 1e-9
    assert answer.value >= best - 1e-3 * abs(answer.bound) - 1e-9


@given(problems)
def test_a_step_makes_the_choice_exact(problem: ChoiceProblem) -> None:
    best = every_choice(problem)

    answer = choose(problem, gap=0.0, step=0.01)

    check(problem, answer)
    assert answer.value == pytest.approx(best, abs=1e-6)


@examples(40)
@given(problems)
def test_dynamic_programming_and_highs_agree_with_every_choice(problem: ChoiceProblem) -> None:
    best = every_choice(problem)
    arguments = (problem.value, problem.kind, problem.count, problem.capacity)

    picks = by_dynamic_programming(*arguments), by_highs(*arguments)

    for pick in picks:
        assert fits(problem, pick)
        assert total(problem, pick) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_round_of_many_jobs_is_within_a_thousandth_of_highs(seed: int) -> None:
    problem = drawn(60, seed)
    exact = by_highs(problem.value, problem.kind, problem.count, problem.capacity)

    answer = choose(problem, gap=1e-3)

    check(problem, answer)
    assert fits(problem, exact)
    assert answer.bound >= total(problem, exact) - 1e-6
    assert answer.value >= total(problem, exact) - 1e-3 * answer.bound


@pytest.mark.parametrize("jobs", [200, 1000])
def test_large_rounds_carry_a_proof_of_a_small_gap(jobs: int) -> None:
    answer = choose(drawn(jobs, seed=1, room=(512.0, 384.0, 256.0)))

    assert 0.0 <= answer.gap <= 1e-3


@pytest.mark.parametrize("seed", seeds(4))
def test_prices_of_another_round_are_mended_until_they_prove_a_small_gap(seed: int) -> None:
    problem = drawn(200, seed, room=(512.0, 384.0, 256.0))
    far_off = np.array([0.0, 0.0, 0.01])

    answer = choose(problem, start=far_off)

    assert dual_value(problem, answer.prices) < dual_value(problem, far_off)
    check(problem, answer)
    assert answer.gap <= 1e-3


@pytest.mark.parametrize("seed", [*seeds(4), 778112626])  # the last of them is hard to share
def test_many_jobs_alike_share_what_there_is_within_the_usual_gap(seed: int) -> None:
    few = drawn(6, seed, room=(200.0, 150.0, 100.0))
    crowd = ChoiceProblem(np.repeat(few.value, 60, axis=0), few.kind, few.count, few.capacity)

    answer = choose(crowd)

    check(crowd, answer)
    assert answer.gap <= 1e-3
    assert answer.bound == pytest.approx(dual_value(crowd, answer.prices))


@pytest.mark.parametrize("seed", seeds(4))
def test_rounded_worths_are_solved_to_the_last_hundredth(seed: int) -> None:
    plain = drawn(40, seed)
    problem = ChoiceProblem(np.round(plain.value, 2), plain.kind, plain.count, plain.capacity)
    exact = by_highs(problem.value, problem.kind, problem.count, problem.capacity, 1e-9)

    answer = choose(problem, gap=0.0, step=0.01)

    assert answer.value == pytest.approx(total(problem, exact), abs=1e-6)


# ---- edges


def single_choice(value: object, room: tuple[float, float] = (4.0, 2.0)) -> ChoiceProblem:
    return ChoiceProblem(np.array(value, dtype=float), KIND, COUNT, np.array(room))


def test_with_room_for_all_everyone_gets_the_best() -> None:
    answer = choose(single_choice([[1, 2, 3, 0, 0], [0, 0, 0, 1, 2]]))

    assert answer.pick.tolist() == [2, 4]
    assert answer.value == answer.bound == 5.0
    assert answer.gap == 0.0


def test_nothing_is_chosen_where_nothing_is_worth_anything() -> None:
    answer = choose(single_choice([[-1, -2, -3, -1, -np.inf], [-np.inf] * 5]))

    assert answer.pick.tolist() == [NONE, NONE]
    assert answer.value == 0.0


def test_no_jobs_and_no_room_are_no_trouble() -> None:
    nobody = choose(ChoiceProblem(np.zeros((0, 5)), KIND, COUNT, np.array((4.0, 2.0))))
    nowhere = choose(single_choice([[1, 2, 3, 1, 2]], room=(0.0, 0.0)))

    assert nobody.pick.tolist() == []
    assert nowhere.pick.tolist() == [NONE]


def test_ties_go_to_the_earlier_size_and_the_same_way_every_time() -> None:
    problem = single_choice([[1, 1, 1, 1, 1]] * 5, room=(2.0, 1.0))

    first, again = choose(problem), choose(problem)

    assert first.pick.tolist() == again.pick.tolist()
    assert first.value == 3.0
    assert best_at(problem, np.zeros(2)).tolist() == [0] * 5


@given(problems)
def test_the_same_problem_has_the_same_answer(problem: ChoiceProblem) -> None:
    assert choose(problem).pick.tolist() == choose(problem).pick.tolist()


@given(problems, st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0)))
def test_any_prices_prove_a_bound(problem: ChoiceProblem, prices: tuple[float, float]) -> None:
    assert dual_value(problem, np.array(prices)) >= every_choice(problem) - 1e-9


@given(problems, st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0)))
def test_repair_makes_any_choice_fit(problem: ChoiceProblem, prices: tuple[float, float]) -> None:
    at: Floats = np.array(prices)
    greedy: Ints = best_at(problem, np.zeros(2))

    repaired = repair(problem, greedy, at, PASSES)

    assert fits(problem, repaired)
    assert np.isfinite(total(problem, repaired))
    assert (used(problem, repaired) <= problem.capacity).all()


# ---- the compiled steps of a few jobs: bit for bit what arrays give


@examples(300)
@given(problems, st.tuples(*[st.integers(0, 60).map(lambda n: n / 40.0)] * 2))
def test_few_jobs_get_at_prices_what_many_would(
    problem: ChoiceProblem, prices: tuple[float, float]
) -> None:
    few = at_prices_of_few(problem, np.array(prices))
    many = at_prices_of_many(problem, np.array(prices))

    assert few.pick.tolist() == many.pick.tolist()
    assert (few.value, few.bound) == (many.value, many.bound)


@pytest.mark.parametrize("seed", seeds(20))
def test_few_jobs_are_settled_as_many_would_be(seed: int) -> None:
    problem = drawn(3 + seed % 20, seed, (16.0, 12.0, 8.0))
    answer = at_prices_of_many(problem, np.random.default_rng(seed).uniform(0.02, 0.1, 3))

    few = at_prices_of_few(problem, answer.prices)

    assert few.pick.tolist() == answer.pick.tolist()
    assert (few.value, few.bound) == (answer.value, answer.bound)
    closed = close_gap_of_many(problem, answer, 0.0).tolist()
    assert close_gap_of_few(problem, answer, 0.0).tolist() == closed


@pytest.mark.parametrize("price", [0.0, 0.25, 0.3])
def test_few_jobs_with_sizes_worth_the_same_a_gpu_get_what_many_would(price: float) -> None:
    problem = ChoiceProblem(
        np.array([[0.25, 0.5, 1.0, 0.25, 0.5]] * 3), KIND, COUNT, np.array((6.0, 3.0))
    )
    prices = np.full(2, price)

    few, many = at_prices_of_few(problem, prices), at_prices_of_many(problem, prices)

    assert few.pick.tolist() == many.pick.tolist()
