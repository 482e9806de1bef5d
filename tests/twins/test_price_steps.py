"""The compiled parts of a Newton step on prices are those of Python, bit for bit."""

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

Arrays = dict[str, Any]
NAMES = {
    "add_tops": ("value", "kind", "count", "prices"),
    "soften": ("value", "kind", "count", "prices", "t", "soft"),
    "weigh": ("soft", "belongs", "weight", "spread"),
    "bend": ("curve", "own", "each", "capacity", "t", "down"),
    "go": ("prices", "step", "t", "after"),
}
# These may have more rows, or prices of more kinds, than others.
OF_ANY_LENGTH = {
    ("add_tops", "value"),
    ("add_tops", "prices"),
    ("soften", "prices"),
    ("bend", "each"),
}


def draw_arrays(seed: int) -> Arrays:
    """A program of up to 90 jobs, and what the steps make of it."""
    rng = np.random.default_rng(seed)
    jobs, sizes, kinds = rng.integers((1, 1, 1), (90, 30, 11)).tolist()
    value = rng.random((jobs, sizes)) * 10.0 ** rng.integers(-3, 3)
    value[rng.random(value.shape) < 0.3] = -np.inf
    kind = rng.integers(0, kinds, sizes)
    count = rng.choice([1.0, 2.0, 4.0, 8.0, 12.0], sizes)
    belongs = np.zeros((sizes, kinds))
    belongs[np.arange(sizes), kind] = count
    prices = rng.random(kinds) * rng.integers(0, 2, kinds)
    square = kinds, kinds
    arrays = {"value": value, "kind": kind, "count": count, "prices": prices, "belongs": belongs}
    arrays |= {"soft": rng.random((jobs, sizes + 1)), "each": rng.random((jobs, kinds)) * 8.0}
    arrays |= {"weight": np.zeros((jobs, sizes)), "spread": np.zeros((sizes, kinds))}
    arrays |= {"curve": rng.random(square), "own": rng.random(square), "after": np.zeros(kinds)}
    arrays |= {"step": rng.normal(0.0, 1.0, kinds), "capacity": rng.random(kinds) * 64.0}
    return {**arrays, "down": np.zeros(kinds), "t": float(rng.choice([1.0, 0.2, 1 / 3]))}


def call(function: Any, name: str, arrays: Arrays) -> list[Any]:
    """What a function answers and what it leaves in its arguments."""
    with np.errstate(invalid="ignore"):
        given_to = [np.copy(arrays[key]) if key != "t" else arrays[key] for key in NAMES[name]]
        answer = function(*given_to)
    return [answer, *(np.asarray(argument).tobytes() for argument in given_to)]


@pytest.mark.parametrize("name", NAMES)
@examples(400)
@given(seed=st.integers(0, 2**32))
def test_a_part_of_a_step_is_the_same(name: str, seed: int) -> None:
    python, compiled = twins(name)
    arrays = draw_arrays(seed)
    assert call(compiled, name, arrays) == call(python, name, arrays)


def test_a_price_that_is_no_number_stays_none() -> None:
    for name in ("soften", "go"):
        python, compiled = twins(name)
        arrays = draw_arrays(5)
        arrays["prices"][0] = np.nan
        out = NAMES[name].index("soft" if name == "soften" else "after") + 1
        expected, answer = (
            np.frombuffer(call(twin, name, arrays)[out]) for twin in (python, compiled)
        )
        assert np.isnan(expected).any()
        assert np.array_equal(expected, answer, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_do_not_agree_are_refused(name: str) -> None:
    _, compiled = twins(name)
    arrays = draw_arrays(3)
    good = [arrays[key] for key in NAMES[name]]
    with pytest.raises(TypeError):
        compiled(*good[:-1])
    for at, argument in enumerate(good):
        if not isinstance(argument, np.ndarray):
            with pytest.raises(TypeError):
                compiled(*good[:at], "warm", *good[at + 1 :])
            continue
        longer: Floats = np.concatenate([argument, argument])
        if (name, NAMES[name][at]) not in OF_ANY_LENGTH:
            with pytest.raises(ValueError, match="agree"):
                compiled(*good[:at], longer, *good[at + 1 :])
        with pytest.raises(TypeError):
            compiled(*good[:at], argument.astype(complex), *good[at + 1 :])


def test_kinds_that_do_not_exist_have_no_price() -> None:
    _, compiled = twins("soften")
    arrays = draw_arrays(3)
    arrays["kind"][0] = len(arrays["prices"])
    with pytest.raises(ValueError, match="agree"):
        compiled(*(arrays[key] for key in NAMES["soften"]))


def test_many_steps_leave_nothing_behind() -> None:
    arrays = draw_arrays(3)
    for name, keys in NAMES.items():
        _, compiled = twins(name)
        good = [arrays[key] for key in keys]
        before = sys.getallocatedblocks()
        for _ in range(3000):
            compiled(*good)
        assert sys.getallocatedblocks() - before < 300, name
        assert all(sys.getrefcount(argument) < 20 for argument in good)
