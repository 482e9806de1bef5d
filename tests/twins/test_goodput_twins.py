"""The compiled goodputs of batches and sizes are those in Python, to the last bit."""

from __future__ import annotations

import gc
import struct
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.twins.twins import twins

from weft.perf.goodput.curves import NO_SIZES, CandidateSteps

NUMBERS = st.sampled_from([0.0, 1.0, 0.25, 3.0, np.inf]) | st.floats(0.0, 1e9) | st.floats(0.0, 1.0)
BATCHES = st.sampled_from([1.0, 2.0, 128.0]) | st.floats(1.0, 1e6)
NOISE = st.tuples(NUMBERS, NUMBERS)


def bits(numbers: Any) -> bytes:
    """What tells 0.0 from -0.0; all that are no number are one."""
    flat = np.asarray(numbers, dtype=float).ravel()
    return struct.pack(f"{len(flat)}d", *np.where(np.isnan(flat), np.nan, flat))


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Batches, seconds, samples per GPU and steps of some candidates."""
    count = draw(st.integers(1, 60))
    rows = [st.lists(of, min_size=count, max_size=count) for of in (BATCHES, NUMBERS)]
    batch, took = (draw(row) for row in rows)
    return np.array((batch, took, np.arange(count) + 1.0, np.arange(count) * 2.0))


@examples(200)
@given(tables(), st.integers(1, 512), NOISE)
def test_the_same_trial_is_the_best(table: Any, init: int, noise: tuple[float, float]) -> None:
    python, compiled = twins("best_trial")
    assert bits(compiled(table, init, *noise)) == bits(python(table, init, *noise))


@st.composite
def steps(draw: st.DrawFn) -> CandidateSteps:
    """Some of nine sizes with some candidates each."""
    column = draw(st.lists(st.integers(0, 8), unique=True, max_size=9))
    cells = [draw(st.lists(of, min_size=4, max_size=4)) for of in (BATCHES, NUMBERS)]
    batch, took = (np.outer(np.arange(len(column)) + 1.0, cell) for cell in cells)
    factor = np.array(draw(st.lists(NUMBERS, min_size=len(column), max_size=len(column))))
    return CandidateSteps(
        np.array(column, np.intp), np.full(len(column), 128.0), factor, batch, took
    )


@examples(200)
@given(st.lists(st.tuples(steps(), NOISE), max_size=6))
def test_the_same_goodputs_are_filled_in(
    jobs: list[tuple[CandidateSteps, tuple[float, float]]],
) -> None:
    filled = []
    for fill in twins("fill_goodputs"):
        goodputs = np.zeros((len(jobs), 9))
        with np.errstate(all="ignore"):
            fill(goodputs, jobs)
        filled.append(bits(goodputs))
    assert filled[0] == filled[1]


@examples(200)
@given(
    st.lists(st.tuples(BATCHES, NOISE), min_size=1, max_size=6, unique_by=lambda row: row[0]),
    st.integers(1, 10**6),
    st.integers(1, 512),
    NUMBERS,
)
def test_the_same_speed_is_true(
    noises: list[tuple[float, tuple[float, float]]], batch: int, init: int, took: float
) -> None:
    sizes, stats = zip(*sorted(noises), strict=True)
    answers = []
    for find in twins("true_speed"):
        try:
            speed, noise = find(sizes, stats, batch, init, took, 1.1)
            answers.append(bits((speed, *noise)))
        except ZeroDivisionError:
            answers.append(b"0")
    assert answers[0] == answers[1]


TABLE = np.ones((4, 3))
STEPS = CandidateSteps(np.array([0]), np.ones(1), np.ones(1), np.ones((1, 2)), np.ones((1, 2)))
WRONG: list[tuple[str, tuple[object, ...]]] = [
    ("best_trial", (TABLE, 1.0, 1.0)),
    ("best_trial", (TABLE[:3], 1.0, 1.0, 1.0)),
    ("best_trial", (TABLE[:, :0], 1.0, 1.0, 1.0)),
    ("best_trial", (TABLE[:, ::2], 1.0, 1.0, 1.0)),
    ("best_trial", (TABLE.astype(complex), 1.0, 1.0, 1.0)),
    ("best_trial", (TABLE, 1.0, "1.0", 1.0)),
    ("fill_goodputs", (np.zeros((1, 1)), ())),
    ("fill_goodputs", (np.zeros((2, 1)), [(STEPS, (1.0, 1.0))])),
    ("fill_goodputs", (np.zeros((1, 1)), [STEPS])),
    ("fill_goodputs", (np.zeros((1, 1)), [(STEPS, (1.0, None))])),
    ("fill_goodputs", (np.zeros((1, 1)), [(STEPS[:4], (1.0, 1.0))])),
    ("fill_goodputs", (np.zeros((1, 1)), [(STEPS._replace(column=np.array([1])), (1.0, 1.0))])),
    ("fill_goodputs", (np.zeros((1, 1)), [((np.ones(1), *STEPS[1:]), (1.0, 1.0))])),
    ("fill_goodputs", (np.zeros((1, 1)), [(STEPS._replace(factor=np.ones(2)), (1.0, 1.0))])),
    ("fill_goodputs", (np.zeros((1, 1)), [(STEPS._replace(took=np.ones((1, 3))), (1.0, 1.0))])),
    ("fill_goodputs", (np.zeros((1, 1)), [((*STEPS[:3], None, STEPS[4]), (1.0, 1.0))])),
    ("true_speed", ((1.0,), (), 1, 1, 1.0, 1.0)),
    ("true_speed", ((1.0,), ((1.0,),), 1, 1, 1.0, 1.0)),
    ("true_speed", ((1.0, "2.0"), ((1.0, 1.0), (1.0, 1.0)), 3, 1, 1.0, 1.0)),
    ("true_speed", ((1.0,), ((1.0, 1.0),), 1, 1, 1.0)),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_compiled_goodputs_refuse_what_they_cannot_read(
    name: str, arguments: tuple[object, ...]
) -> None:
    _, compiled = twins(name)
    with pytest.raises((TypeError, ValueError, IndexError, BufferError)):
        compiled(*arguments)


def test_compiled_goodputs_leave_nothing_behind() -> None:
    calls = [
        ("best_trial", (TABLE, 1.0, 1.0, 1.0)),
        ("fill_goodputs", (np.zeros((2, 1)), [(STEPS, (1.0, 1.0)), (NO_SIZES, (1.0, 1.0))])),
        ("true_speed", ((1.0, 4.0), ((1.0, 1.0), (2.0, 1.0)), 2, 1, 1.0, 1.0)),
        *WRONG,
    ]
    compiled = [(twins(name)[1], arguments) for name, arguments in calls]
    before = sys.getallocatedblocks()
    for _ in range(600):
        for function, arguments in compiled:
            with suppress(TypeError, ValueError, IndexError, BufferError):
                function(*arguments)
    gc.collect()
    assert sys.getallocatedblocks() - before < 500
