"""What sizes are worth is the same compiled and in Python, bit for bit."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.twins.twins import twins

VALUE = 6
FILLED = {"fill_changes": (6, 7, 8, 9, 11), "fill_speeds": (4,), "fill_levels": (2,)}


def draw_changes(seed: int) -> list[Any]:
    """Jobs that are young, restore, train or wait, and what starts and changes cost them."""
    rng = np.random.default_rng(seed)
    rows, sizes, kinds = rng.integers((1, 1, 1), (12, 20, 5)).tolist()
    costs = rng.random((rows, kinds, 6)) * rng.integers(0, 2, (rows, kinds, 6))
    held = rng.integers(-1, sizes, rows).astype(float)
    reported, attempt, devices = rng.integers(0, 3, (3, rows)).astype(float)
    filled = np.zeros((4, rows, sizes))
    return [
        *(costs.transpose(2, 0, 1), held, reported, attempt, devices),
        *(rng.choice([1.0, 2.0, 4.0, 8.0], sizes), *filled),
        *(rng.integers(0, kinds, sizes), np.zeros(rows, dtype=np.intp)),
    ]


def draw_goodputs(seed: int) -> list[Any]:
    """Goodputs of sizes, up to the GPUs that rows asked for, on kinds with and without sizes."""
    rng = np.random.default_rng(seed)
    rows, sizes, kinds = rng.integers((1, 1, 1), (12, 20, 5)).tolist()
    goodput = rng.random((rows, sizes)) * rng.integers(0, 2, (rows, sizes))
    gpus, asked = (rng.choice([1.0, 2.0, 4.0, 8.0], length) for length in (sizes, rows))
    there = rng.integers(1, 99, kinds).astype(float)
    return [goodput, gpus, asked, there, np.zeros(rows), rng.integers(0, kinds, sizes)]


def draw_rows(seed: int) -> list[Any]:
    """Goodputs of rows, some of nothing or of no number, with what they hold and restart for."""
    rng = np.random.default_rng(seed)
    rows, sizes = rng.integers((1, 1), (12, 20)).tolist()
    goodput = rng.random((rows, sizes)) * rng.integers(0, 2, (rows, sizes))
    goodput = np.round(goodput, int(rng.integers(1, 9)))
    goodput[rng.random((rows, sizes)) < 0.1] = np.nan
    units = rng.choice([0.0, 1.0, 2.0, 4.0], (rows, sizes))
    held = rng.integers(-1, sizes + 1, rows).astype(float)
    return [goodput, np.asfortranarray(units), np.zeros((rows, sizes)), held, rng.random(rows)]


DRAWN = {"fill_changes": draw_changes, "fill_speeds": draw_goodputs, "fill_levels": draw_rows}


@pytest.mark.parametrize("name", FILLED)
@examples(800)
@given(seed=st.integers(0, 2**32))
def test_seconds_and_speeds_of_rows_are_the_same(name: str, seed: int) -> None:
    python, compiled = twins(name)
    arguments = DRAWN[name](seed)
    python(*arguments)
    expected = [arguments[at].tobytes() for at in FILLED[name]]
    for at in FILLED[name]:
        arguments[at][:] = -2
    assert compiled(*arguments) is None
    assert [arguments[at].tobytes() for at in FILLED[name]] == expected


@pytest.mark.parametrize("name", FILLED)
def test_rows_whose_arrays_do_not_agree_are_left_alone(name: str) -> None:
    _, compiled = twins(name)
    good = DRAWN[name](1)
    with pytest.raises(TypeError):
        compiled(*good[:-1])
    for at, argument in enumerate(good):
        longer = np.concatenate([argument, argument])
        if (name, at) != ("fill_speeds", 3):  # there may be kinds without sizes
            with pytest.raises(ValueError, match="agree"):
                compiled(*good[:at], longer, *good[at + 1 :])
        with pytest.raises(TypeError):
            compiled(*good[:at], argument.astype(complex), *good[at + 1 :])
    before = sys.getallocatedblocks()
    for _ in range(3000):
        compiled(*good)
    assert sys.getallocatedblocks() - before < 300


def test_sizes_and_kinds_that_do_not_exist_cost_nothing() -> None:
    _, compiled = twins("fill_changes")
    good = draw_changes(1)
    good[1][0] = len(good[5])
    with pytest.raises(IndexError):
        compiled(*good)
    good[10][0] = good[0].shape[2]
    with pytest.raises(ValueError, match="agree"):
        compiled(*good)


def draw_jobs(seed: int) -> list[Any]:
    """Jobs that hold a size or none, with equal speeds, no costs and endless work among them."""
    rng = np.random.default_rng(seed)
    jobs, sizes = rng.integers((1, 1), (12, 20)).tolist()
    shape = jobs, sizes
    speed = np.round(rng.random(shape), int(rng.integers(1, 9)))
    start, change, ready = (
        rng.choice([0.0, 30.0, 700.0, 1e4], shape) * rng.random(shape) for _ in range(3)
    )
    rent = rng.choice([0.0, 0.01, 0.3], shape)
    rise = rng.choice([3600.0, 60.0, 0.5], shape)
    held = rng.integers(-1, sizes, jobs).astype(float)
    left = rng.choice([1.0, 60.0, 1e4, np.inf], jobs) * (1.0 + rng.random(jobs))
    weight = rng.random(jobs) * 10.0
    return [
        *(speed, start, np.asfortranarray(change), ready, rent, rise, np.zeros(shape)),
        *(held, weight, left, float(rng.choice([600.0, 0.3])), 0.02),
    ]


@examples(1500)
@given(st.integers(0, 2**32))
def test_sizes_are_worth_the_same(seed: int) -> None:
    python, compiled = twins("fill_values")
    arguments = draw_jobs(seed)
    with np.errstate(invalid="ignore"):
        python(*arguments)
    expected = arguments[VALUE].tobytes()
    arguments[VALUE][:] = -1.0
    assert compiled(*arguments) is None
    assert arguments[VALUE].tobytes() == expected


def test_jobs_whose_arrays_do_not_agree_have_no_values() -> None:
    _, compiled = twins("fill_values")
    good = draw_jobs(1)
    with pytest.raises(TypeError):
        compiled(*good[:-1])
    for at, argument in enumerate(good[:10]):
        longer = np.concatenate([argument, argument])
        with pytest.raises(ValueError, match="agree"):
            compiled(*good[:at], longer, *good[at + 1 :])
        with pytest.raises(TypeError):
            compiled(*good[:at], argument.astype(complex), *good[at + 1 :])
    with pytest.raises(TypeError):
        compiled(*good[:10], "long", 0.02)
    good[7][0] = good[0].shape[1]
    with pytest.raises(IndexError):
        compiled(*good)


def test_many_values_leave_nothing_behind() -> None:
    _, compiled = twins("fill_values")
    good = draw_jobs(1)
    before = sys.getallocatedblocks()
    for _ in range(3000):
        compiled(*good)
    assert sys.getallocatedblocks() - before < 300
