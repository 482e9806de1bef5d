"""What is compiled about rows of jobs finds what Python finds, to the last bit."""

from __future__ import annotations

from sys import getallocatedblocks

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.twins.twins import twins

from weft.core.state.cells import Floats

NEED = st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 0.7, 1.0, 2.0, 3.0, 8.0, 64.0])
KEY = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf, np.nan]), st.floats(-1e9, 1e9))
ROW = st.tuples(KEY, NEED, st.booleans(), st.booleans())
ROOM = st.sampled_from([0.0, 0.3, 1.0, 8.0, 20.1, 500.0])


def columns(rows: list[tuple[float, float, bool, bool]], spread: bool) -> list[Floats]:
    """Key, need, GPUs asked for and held; some rows hold more than they asked for."""
    key, need = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    gpus = np.ceil(need)
    held = np.array([row[2] * (1.0 + row[3]) for row in rows]) * gpus
    every = [key.astype(float), need.astype(float), gpus.astype(float), held.astype(float)]
    return [np.repeat(column, 2)[::2] for column in every] if spread else every


@given(st.lists(ROW, max_size=250), ROOM, st.booleans())
def test_the_same_rows_are_chosen(
    rows: list[tuple[float, float, bool, bool]], room: float, spread: bool
) -> None:
    key, need, _, held = columns(rows, spread)
    python, compiled = twins("choose_rows")
    assert compiled(key, need, held, room) == python(key, need, held, room)


@given(st.integers(380, 3000), st.integers(0, 2**32), st.lists(KEY, min_size=1, max_size=6))
def test_many_rows_are_in_the_same_order(length: int, seed: int, often: list[float]) -> None:
    rng = np.random.default_rng(seed)
    key = rng.standard_normal(length) * 10.0 ** rng.integers(-300, 300, length)
    key[rng.random(length) < rng.random()] = -np.inf
    again = rng.random(length) < rng.random()
    key[again] = rng.choice(often, int(again.sum()))
    held = np.zeros(length)
    for name, arguments in (
        ("choose_rows", (key, held + 1.0, held, length / 3)),
        ("list_waiting", (held, held + 1.0, key, length + 1.0)),
    ):
        python, compiled = twins(name)
        assert compiled(*arguments) == python(*arguments), name


@given(st.lists(ROW, max_size=250), ROOM, st.booleans(), st.booleans())
def test_the_same_rows_wait(
    rows: list[tuple[float, float, bool, bool]], room: float, spread: bool, ranked: bool
) -> None:
    key, need, _, held = columns(rows, spread)
    python, compiled = twins("list_waiting")
    by = key if ranked else None
    assert compiled(held, need, by, room) == python(held, need, by, room)


@given(st.lists(ROW, max_size=600), st.booleans(), st.booleans())
def test_what_is_held_adds_up_to_the_last_bit(
    rows: list[tuple[float, float, bool, bool]], spread: bool, as_asked: bool
) -> None:
    _, need, gpus, held = columns(rows, spread)
    held = np.minimum(held, gpus) if as_asked else held
    python, compiled = twins("count_held")
    assert compiled(held, gpus, need) == python(held, gpus, need)


@given(
    st.lists(st.tuples(*[st.floats(0.0, 1e7)] * 4), min_size=1, max_size=40),
    st.lists(st.integers(0, 39), max_size=60),
    st.floats(0.0, 1e7),
)
def test_the_same_work_is_left(
    jobs: list[tuple[float, ...]], picked: list[int], now: float
) -> None:
    seq = np.array([number % len(jobs) for number in picked], dtype=float)
    meters = [np.array([job[at] for job in jobs]) for at in range(4)]
    ours, theirs = np.empty(len(seq)), np.empty(len(seq))
    python, compiled = twins("work_left")
    python(seq, now, *meters, theirs)
    compiled(seq, now, *meters, ours)
    assert ours.tobytes() == theirs.tobytes()


def test_columns_that_do_not_belong_together_are_refused() -> None:
    _, choose = twins("choose_rows")
    _, left = twins("work_left")
    short, two = np.ones(1), np.ones(2)
    with pytest.raises(ValueError, match="different lengths"):
        choose(short, two, short, 1.0)
    with pytest.raises(TypeError, match="floats"):
        choose(np.ones(1, dtype=complex), short, short, 1.0)
    with pytest.raises(TypeError):
        choose(short, short, short)
    with pytest.raises(ValueError, match="no job"):
        left(np.array([2.0]), 0.0, two, two, two, two, np.empty(1))
    with pytest.raises(ValueError, match="no job"):
        left(np.array([1.0]), 0.0, two, two, two, two, np.empty(3))


@pytest.mark.parametrize("type_", ["i4", "i8", "u1", "?", "f4", "f2"])
def test_keys_of_any_numbers_are_taken(type_: str) -> None:
    key = np.array([3, 1, 0, 2, 1]).astype(type_)
    need, held = np.ones(5, dtype=type_), np.array([0, 1, 0, 1, 0], dtype=type_)
    for name, arguments in (
        ("choose_rows", (key, need, held, 3.0)),
        ("list_waiting", (held, need, key, 9.0)),
        ("count_held", (held, need, need)),
    ):
        python, compiled = twins(name)
        assert compiled(*arguments) == python(*arguments), name


def test_results_are_written_to_floats_alone() -> None:
    _, left = twins("work_left")
    two = np.ones(2)
    with pytest.raises(TypeError, match="floats"):
        left(np.array([1]), 0.0, two, two, two, two, np.empty(1, dtype=int))


def test_calls_leave_nothing_behind() -> None:
    _, choose = twins("choose_rows")
    _, waiting = twins("list_waiting")
    key = np.arange(40.0)
    need, held = np.ones(40), (key % 2.0)
    choose(key, need, held, 30.0)
    before = getallocatedblocks()
    for _ in range(2_000):
        choose(key, need, held, 30.0)
        waiting(held, need, key, 30.0)
        waiting(held, need, key, 3.0)
    assert getallocatedblocks() - before < 200
