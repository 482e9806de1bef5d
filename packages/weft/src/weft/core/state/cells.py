"""Single rows in the cells of a table: a matrix of floats with a row for each column."""

from __future__ import annotations

from math import inf
from typing import NewType

import numpy as np
from numpy.typing import NDArray

from weft.native import compiled

Floats = NDArray[np.float64]
ColumnNumber = NewType("ColumnNumber", int)
# Rows to move from which it is quicker column by column: numpy copies an overlapping matrix
# aside first, an overlapping row of it not.
LONG_MOVE = 2000


class TableColumns:
    """The columns of a table.

    Plain numbers with a type of their own: numpy takes twice as long to index by members of an
    IntEnum, and the state machine does little else. Compiled code knows them by number.
    """

    SEQ = ColumnNumber(0)  # order of submission
    SUBMITTED = ColumnNumber(1)
    GPUS = ColumnNumber(2)  # devices asked for
    MIN = ColumnNumber(3)
    MAX = ColumnNumber(4)
    NEED = ColumnNumber(5)  # GPUs asked for, fractions counted as such
    PRIORITY = ColumnNumber(6)
    TIER = ColumnNumber(7)
    STAGE = ColumnNumber(8)
    ATTEMPT = ColumnNumber(9)
    HELD = ColumnNumber(10)  # devices promised now
    RAN_BASE = ColumnNumber(11)  # seconds executed: a linear meter
    RAN_RATE = ColumnNumber(12)
    RAN_SINCE = ColumnNumber(13)
    SERVICE_BASE = ColumnNumber(14)  # GPU-seconds attained: a linear meter
    SERVICE_RATE = ColumnNumber(15)
    SERVICE_SINCE = ColumnNumber(16)
    STARTED = ColumnNumber(17)  # when a job first ran, infinite before
    RETRIES = ColumnNumber(18)
    REPORTED = ColumnNumber(19)  # the last attempt that reported
    PREEMPTIBLE = ColumnNumber(20)
    FAILED = ColumnNumber(21)  # when an attempt last died


@compiled
def write_row(cells: Floats, row: int, values: tuple[float, ...]) -> None:
    """Write a value into every column of a row."""
    cells[:, row] = values


@compiled
def hold(cells: Floats, row: int, gpus: float, stage: float) -> int:
    """A job is promised devices; the number of the attempt."""
    attempt = int(cells.item(TableColumns.ATTEMPT, row)) + 1
    cells[TableColumns.ATTEMPT, row] = attempt
    cells[TableColumns.HELD, row] = gpus
    cells[TableColumns.STAGE, row] = stage
    return attempt


@compiled
def switch_on(cells: Floats, row: int, now: float, gpus: float) -> None:
    """Count that the job executes on `gpus` devices from `now` on."""
    cells[TableColumns.RAN_RATE, row], cells[TableColumns.RAN_SINCE, row] = 1.0, now
    cells[TableColumns.SERVICE_RATE, row], cells[TableColumns.SERVICE_SINCE, row] = gpus, now
    if cells.item(TableColumns.STARTED, row) == inf:
        cells[TableColumns.STARTED, row] = now


@compiled
def switch_off(cells: Floats, row: int, now: float) -> None:
    """The job stops executing at `now`."""
    if cells.item(TableColumns.RAN_RATE, row):
        ran, served = read_row_meters(cells, row, now)
        cells[TableColumns.RAN_BASE, row], cells[TableColumns.SERVICE_BASE, row] = ran, served
        cells[TableColumns.RAN_RATE, row] = cells[TableColumns.SERVICE_RATE, row] = 0.0
    cells[TableColumns.RAN_SINCE, row] = cells[TableColumns.SERVICE_SINCE, row] = now


@compiled
def read_row_meters(cells: Floats, row: int, now: float) -> tuple[float, float]:
    """Seconds that one job has executed, and GPU-seconds it has attained."""
    at = cells.item
    ran, served = at(TableColumns.RAN_BASE, row), at(TableColumns.SERVICE_BASE, row)
    if rate := at(TableColumns.RAN_RATE, row):
        ran += rate * (now - at(TableColumns.RAN_SINCE, row))
        served += at(TableColumns.SERVICE_RATE, row) * (now - at(TableColumns.SERVICE_SINCE, row))
    return ran, served


@compiled
def close_gap(cells: Floats, row: int, size: int) -> bool:
    """Move rows over one that left, from the side where fewer are; whether that is the front."""
    front = row < size - row
    if front:
        _move(cells, slice(1, row + 1), slice(row))
    else:
        _move(cells, slice(row, size - 1), slice(row + 1, size))
    return front


def _move(cells: Floats, to: slice, rows: slice) -> None:
    """Copy rows, of as many, over others beside them."""
    if rows.stop - (rows.start or 0) > LONG_MOVE:
        for column in cells:
            column[to] = column[rows]
    else:
        cells[:, to] = cells[:, rows]
