"""Rows of the table are written to the last bit as Python writes them."""

from __future__ import annotations

from collections.abc import Callable
from sys import getallocatedblocks
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.twins.twins import twins

from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import COLUMNS

NUMBER = st.one_of(st.floats(0.0, 1e9), st.sampled_from([0.0, 1.0, np.inf]))
ROWS = 7
DRAWN = st.lists(NUMBER, min_size=len(COLUMNS) * ROWS, max_size=len(COLUMNS) * ROWS)


def play(calls: dict[str, Callable[..., Any]], cells: Floats, row: int, now: float) -> list[Any]:
    """Everything that happens to a row; what was returned, and the cells after each."""
    seen: list[Any] = []
    for name, rest in (
        ("hold", (3, 2)),
        ("switch_on", (now, 2.5)),
        ("read_row_meters", (now + 0.3,)),
        ("switch_off", (now + 0.7,)),
        ("switch_off", (now + 1.0,)),
        ("close_gap", (ROWS - 1,)),
        ("write_row", (tuple(float(n) for n in range(len(COLUMNS))),)),
    ):
        seen.append((name, calls[name](cells, row, *rest), cells.copy().tobytes()))
    return seen


@given(DRAWN, st.integers(0, ROWS - 2), st.floats(0.0, 1e7), st.booleans())
def test_rows_are_written_alike(numbers: list[float], row: int, now: float, sliced: bool) -> None:
    made = np.array(numbers).reshape(len(COLUMNS), ROWS)
    made[TableColumns.ATTEMPT] = np.arange(ROWS)
    names = ("hold", "switch_on", "read_row_meters", "switch_off", "close_gap", "write_row")
    pairs = {name: twins(name) for name in names}
    played = []
    for side in (0, 1):
        cells = np.repeat(made, 2, axis=1)[:, :ROWS].copy() if sliced else made.copy()
        played.append(play({name: pair[side] for name, pair in pairs.items()}, cells, row, now))
    assert repr(played[0]) == repr(played[1])


def test_what_is_no_row_of_a_table_is_refused() -> None:
    cells = np.zeros((len(COLUMNS), 3))
    for name, rest in (("hold", (1.0, 2)), ("switch_off", (1.0,)), ("close_gap", (3,))):
        _, compiled = twins(name)
        with pytest.raises(ValueError, match="table"):
            compiled(cells, 3, *rest)
        with pytest.raises(ValueError, match="table"):
            compiled(cells[:5], 0, *rest)
        with pytest.raises(TypeError):
            compiled(cells, 0)
        with pytest.raises((TypeError, BufferError)):
            compiled([1.0], 0, *rest)
    _, write = twins("write_row")
    with pytest.raises(ValueError, match="each column"):
        write(cells, 0, (1.0,))
    _, close = twins("close_gap")
    with pytest.raises(ValueError, match="size"):
        close(cells, 2, 2)


def test_rows_leave_nothing_behind() -> None:
    cells = np.zeros((len(COLUMNS), 3))
    _, hold = twins("hold")
    _, read = twins("read_row_meters")
    hold(cells, 0, 1, 2)
    before = getallocatedblocks()
    for _ in range(5_000):
        hold(cells, 0, 1, 2)
        read(cells, 0, 5.0)
    assert getallocatedblocks() - before < 200
