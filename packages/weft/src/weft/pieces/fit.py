"""Jobs that fit, by counting GPUs alone: a scan in order that skips what does not fit."""

from __future__ import annotations

import numpy as np

from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools, Rows
from weft.native import compiled
from weft.pieces.place.gangs import acceptable

EPS = 1e-9
FEW = 256  # sizes that are quicker taken one by one


def fit_first(need: Floats, room: float) -> Bools:
    """Mark what finds room of `need`, taken in order; what does not is skipped.

    Each pass takes the longest prefix that fits and drops everything larger than what is
    left, so there are at most as many passes as different sizes. Only as many are added up as
    would fit if all were as small as the smallest.
    """
    if len(need) <= FEW:
        return np.array(_fit_few(need.tolist(), room), dtype=np.bool_)
    chosen = np.zeros(len(need), dtype=bool)
    rows = np.flatnonzero(need <= room + EPS)
    least = float(need[rows].min(initial=np.inf))
    while rows.size:
        most = int((room + EPS) / least) + 1 if least > 0.0 else rows.size
        total = np.cumsum(need[rows[:most]])
        count = int(np.searchsorted(total, room + EPS, side="right"))
        chosen[rows[:count]] = True
        if count == rows.size:
            break
        if count:
            room -= float(total[count - 1])
        rest = rows[count + 1 :]
        rows = rest[need[rest] <= room + EPS]
    return chosen


def _fit_few(need: list[float], room: float) -> list[bool]:
    """Choose by the same passes for few jobs, as lists."""
    chosen: list[bool] = []
    taken, most = 0.0, room + EPS
    for size in need:
        total = taken + size
        fits = total <= most
        if fits:
            taken = total
        elif size <= most:  # a pass ends here
            room -= taken
            taken, most = 0.0, room + EPS
        chosen.append(fits)
    return chosen


@compiled
def list_waiting(held: Floats, need: Floats, key: Floats | None, room: float) -> list[int] | None:
    """The rows that hold nothing, by `key` if there is one; None if they need more than `room`."""
    rows: Rows = (held == 0.0).nonzero()[0]
    if np.add.reduce(need[rows]) > room:
        return None
    if key is not None:
        rows = rows[np.argsort(key[rows], kind="stable")]
    waiting: list[int] = rows.tolist()
    return waiting


@compiled
def count_held(held: Floats, gpus: Floats, need: Floats) -> float | None:
    """The GPUs needed by rows that hold devices.

    None if one holds more or fewer than it asked for.
    """
    running: Bools = held > 0.0
    if np.count_nonzero((held != gpus) & running):
        return None
    return float(np.add.reduce(need[running]))


@compiled
def choose_rows(
    key: Floats, need: Floats, held: Floats, room: float
) -> tuple[list[int], list[int], list[int]]:
    """Divide rows in order of `key`: those that must stop, those that start, all that find room."""
    order = key.argsort(kind="stable")
    chosen, runs = fit_first(need[order], room), held[order] > 0.0
    stopped, started = order[runs & ~chosen], order[~runs & chosen]
    return stopped.tolist(), started.tolist(), order[chosen].tolist()


def fit(view: View, order: Rows) -> Bools:
    """Rows of `order` that find room, if they may use all that only they hold."""
    if len(view.cluster.kinds) > 1:
        return _fit_kinds(view, order)
    need = view.table.need[order]
    held = view.table.held[order] > 0.0
    room = view.free.room()
    if need[~held].sum() <= room:
        return np.ones(len(order), dtype=bool)
    return fit_first(need, room + float((need * times_asked(view, order)).sum()))


def times_asked(view: View, order: Rows) -> Floats:
    """Return what each row holds over its request: above 1 where another policy let it grow."""
    return view.table.held[order] / np.maximum(view.table.column(TableColumns.GPUS)[order], 1.0)


def _fit_kinds(view: View, order: Rows) -> Bools:
    """Rows that find room with several kinds: a running job stays on its kind or leaves."""
    table, free = view.table, view.free
    room = dict(zip(free.kinds, map(float, free.idle_by_kind()), strict=True))
    own: dict[int, str] = {}
    for row in order:
        on = table.allocations[row]
        if on is not None:
            own[row] = view.cluster.kind_of(on)
            room[own[row]] += on.counted_gpus
    chosen = np.zeros(len(order), dtype=bool)
    smallest = float(table.need[order].min(initial=np.inf))
    for position, row in enumerate(order):
        need = float(table.need[row])
        mine = own.get(row)
        for kind in (mine,) if mine else acceptable(table.jobs[row], free):
            if need <= room[kind] + EPS:
                room[kind] -= need
                chosen[position] = True
                break
        if max(room.values()) < smallest - EPS:
            break
    return chosen
