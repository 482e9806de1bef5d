"""The compiled fit of step times is the one in Python, to the last bit."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.twins.twins import twins

from weft.base.step_fit import FitRow

SECONDS = st.floats(1e-9, 1e7) | st.floats(0.001, 2.0) | st.sampled_from([0.0, 0.1, 0.2])
ROWS = st.lists(
    st.builds(
        lambda nodes, each, local, grad, wait: FitRow(
            nodes, nodes * each, local, grad, grad + wait
        ),
        st.sampled_from([1, 1, 2, 3, 16]),
        st.sampled_from([1, 1, 2, 4, 8]),
        st.sampled_from([1, 12, 64, 128, 129]) | st.integers(1, 10**9),
        SECONDS,
        SECONDS,
    ),
    min_size=1,
    max_size=40,
)


@examples(300)
@given(ROWS)
def test_the_same_parameters_are_fitted(rows: list[FitRow]) -> None:
    python, compiled = twins("fit_rows")
    assert repr(compiled(tuple(rows))) == repr(python(tuple(rows)))


@pytest.mark.parametrize(
    "rows", [(), [FitRow(1, 1, 1, 1.0, 1.0)], ((1, 1, 1.0),), ("12345",), None]
)
def test_a_fit_of_something_else_is_refused(rows: object) -> None:
    _, compiled = twins("fit_rows")
    with pytest.raises(TypeError):
        compiled(rows)


def test_a_compiled_fit_leaves_nothing_behind() -> None:
    _, compiled = twins("fit_rows")
    rows = (FitRow(1, 1, 64, 0.1, 0.1), FitRow(2, 8, 64, 0.1, 0.2), (1, 1, 1))
    before = sys.getallocatedblocks()
    for _ in range(1_200):
        compiled(rows[:2])
        with suppress(TypeError):
            compiled(rows)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1_000
