"""The compiled multiple-choice programs of a few jobs are answered as in Python."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.twins.twins import twins

from weft.core.state.cells import Floats

Program = tuple[Floats, Any, Floats, Floats]
WORTHS = [-np.inf, -0.5, 0.0, 0.1, 0.25, 0.3, 0.5, 1 / 3, 1.0, 2.0, 4.0]
COUNTS = [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 12.0]
seeds = st.integers(0, 2**32)


def draw_program(rng: np.random.Generator, most: int = 20) -> Program:
    """Jobs with ties, sizes they cannot have, and rooms from none at all to plenty."""
    jobs, sizes, kinds = rng.integers((0, 1, 1), (most, 9, 4), endpoint=False).tolist()
    value = rng.choice(WORTHS, (jobs, sizes))
    if rng.random() < 0.5:
        value += np.round(rng.random((jobs, sizes)), int(rng.integers(1, 9)))
    count = rng.choice(COUNTS[int(rng.integers(0, 3)) :], sizes)
    room = rng.integers(0, int(rng.integers(2, 25)), kinds).astype(float)
    return value, rng.integers(0, kinds, sizes), count, room


def draw_prices(rng: np.random.Generator, program: Program) -> Floats:
    return rng.choice([0.0, 0.1, 0.25, 0.5, rng.random()], len(program[3]))


@examples(500)
@given(seeds)
def test_jobs_that_all_fit_take_the_same(seed: int) -> None:
    python, compiled = twins("take_freely")
    program = draw_program(np.random.default_rng(seed))
    assert compiled(*program) == python(*program)


@examples(4000)
@given(seeds, st.integers(0, 12))
def test_jobs_take_the_same_at_prices(seed: int, passes: int) -> None:
    python, compiled = twins("take_at_prices")
    rng = np.random.default_rng(seed)
    program = draw_program(rng)
    prices = draw_prices(rng, program)
    assert compiled(*program, prices, passes) == python(*program, prices, passes)


@pytest.mark.parametrize("which", [0, 1])
def test_a_job_that_holds_no_gpu_is_not_moved_to_free_some(which: int) -> None:
    take = twins("take_at_prices")[which]
    worth = np.array([[-np.inf, 1.0, -np.inf], [3.0, -np.inf, 4.0]])
    kinds, sizes = np.array([0, 0, 0]), np.array([4.0, 0.0, 12.0])
    picks, _ = take(worth, kinds, sizes, np.array([1.0]), np.array([0.1]), 0)
    assert picks == [1, -1]


@examples(1000)
@given(seeds, st.floats(0.0, 3.0), st.sampled_from([20.0, 9000.0]))
def test_gaps_are_closed_in_the_same_way(seed: int, slack: float, states: float) -> None:
    python, compiled = twins("close_exactly")
    rng = np.random.default_rng(seed)
    program = draw_program(rng, 10)
    prices = draw_prices(rng, program)
    assert compiled(*program, prices, slack, states) == python(*program, prices, slack, states)


@examples(1000)
@given(seeds)
def test_a_grid_is_filled_in_the_same_way(seed: int) -> None:
    python, compiled = twins("fill_grid")
    program = draw_program(np.random.default_rng(seed), 10)
    assert compiled(*program) == python(*program)


@given(st.integers(0, 300), st.integers(1, 4), seeds)
def test_values_are_added_up_in_the_same_order(jobs: int, sizes: int, seed: int) -> None:
    python, compiled = twins("add_up")
    rng = np.random.default_rng(seed)
    value = rng.random((jobs, sizes)) * 10.0 ** rng.integers(-8, 8, (jobs, sizes))
    pick = rng.integers(-1, sizes, jobs)
    assert compiled(value, pick) == python(value, pick)
    assert compiled(value[::2], pick[::2]) == python(value[::2], pick[::2])
    across = np.asfortranarray(value)
    assert compiled(across, pick) == python(value, pick)


def example_of(jobs: int) -> Program:
    rng = np.random.default_rng(jobs)
    count = np.array([1.0, 2.0, 4.0, 1.0, 2.0])
    return rng.random((jobs, 5)), np.array([0, 0, 0, 1, 1]), count, np.array([7.0, 3.0])


def test_arrays_that_lie_otherwise_in_memory_are_read_as_well() -> None:
    value, kind, count, room = example_of(9)
    _, compiled = twins("take_at_prices")
    plain = compiled(value, kind, count, room, np.array([0.1, 0.2]), 12)
    apart = np.repeat(count, 2)[::2]
    assert compiled(np.asfortranarray(value), kind, apart, room, np.array([0.1, 0.2]), 12) == plain


@pytest.mark.parametrize("name", ["take_freely", "take_at_prices", "close_exactly", "fill_grid"])
def test_programs_that_are_none_are_refused(name: str) -> None:
    _, compiled = twins(name)
    value, kind, count, room = example_of(3)
    more = {"take_at_prices": (room, 12), "close_exactly": (room, 0.1, 50.0)}.get(name, ())
    with pytest.raises(TypeError):
        compiled(value)
    for wrong in ((kind, kind, count, room), (value, count, count, room), (value[0], *more)):
        with pytest.raises(TypeError):
            compiled(*wrong, *more)
    for odd in (
        (value[:, :4], kind, count, room),
        (value, kind, count[:4], room),
        (value, kind + 1, count, room),
        (value, kind - 1, count, room),
        (value, kind, -count, room),
        (value, kind, count * np.nan, room),
        (value[:, :0], kind[:0], count[:0], room),
    ):
        with pytest.raises(ValueError, match=r"size|length"):
            compiled(*odd, *more)


def test_sizes_that_do_not_exist_are_not_added_up() -> None:
    _, compiled = twins("add_up")
    with pytest.raises(IndexError):
        compiled(np.ones((2, 3)), np.array([0, 3]))
    with pytest.raises(ValueError, match="length"):
        compiled(np.ones((2, 3)), np.array([0]))


def test_a_grid_without_end_is_refused() -> None:
    _, compiled = twins("fill_grid")
    value, kind, count, room = example_of(3)
    with pytest.raises(ValueError, match="room"):
        compiled(value, kind, count * 1e12, room + 1e12)
    with pytest.raises(ValueError, match="room"):
        compiled(value, kind, count, room - 100.0)


def test_many_programs_leave_nothing_behind() -> None:
    program, prices = example_of(12), np.array([0.1, 0.2])
    pick = np.zeros(12, dtype=np.intp)
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("take_freely", program),
        ("take_at_prices", (*program, prices, 12)),
        ("close_exactly", (*program, prices, 0.3, 9000.0)),
        ("close_exactly", (*program, prices, 0.3, 1.0)),
        ("fill_grid", program),
        ("add_up", (program[0], pick)),
    ]
    for name, arguments in calls:
        _, compiled = twins(name)
        before = sys.getallocatedblocks()
        for _ in range(3000):
            compiled(*arguments)
        assert sys.getallocatedblocks() - before < 300, name


@pytest.mark.parametrize("type_", ["i4", "i8", "u1", "f4"])
def test_programs_of_whole_numbers_are_taken_as_well(type_: str) -> None:
    value = np.array([[1, 3, 4], [2, 2, 5], [0, 1, 3]]).astype(type_)
    count, room = np.array([1, 2, 4]).astype(type_), np.array([6]).astype(type_)
    kind = np.zeros(3, dtype="i4" if type_ == "f4" else type_)
    prices = np.array([1]).astype(type_)
    for name, more in (("take_freely", ()), ("take_at_prices", (prices, 12)), ("fill_grid", ())):
        python, compiled = twins(name)
        assert compiled(value, kind, count, room, *more) == python(
            value, kind, count, room, *more
        ), name
