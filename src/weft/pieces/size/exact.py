"""Exact multiple-choice knapsack: by dynamic programming where capacities are small, by HiGHS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import WeftError
from weft.core.table import Floats

Ints = NDArray[np.intp]


def by_dynamic_programming(value: Floats, kind: Ints, count: Floats, room: Floats) -> Ints:
    """One pass a job over the grid of what is left of each kind."""
    largest = np.where(np.isfinite(value) & (value > 0.0), count[None, :], 0.0)
    useful = [largest[:, kind == k].max(axis=1, initial=0.0).sum() for k in range(len(room))]
    grid = tuple(int(min(r, u) + 1e-9) + 1 for r, u in zip(room, useful, strict=True))
    best = np.zeros(grid)
    choices = []
    for row in value:
        better, chosen = best.copy(), np.full(grid, -1, dtype=np.int32)
        for size in np.flatnonzero(np.isfinite(row) & (row > 0.0)).tolist():
            k, c = int(kind[size]), int(count[size])
            if c >= grid[k]:
                continue
            rest: list[slice] = [slice(None)] * len(grid)
            here: list[slice] = [slice(None)] * len(grid)
            rest[k], here[k] = slice(0, grid[k] - c), slice(c, None)
            trial = best[tuple(rest)] + row[size]
            gain = trial > better[tuple(here)] + 1e-12
            np.copyto(better[tuple(here)], trial, where=gain)
            np.copyto(chosen[tuple(here)], np.int32(size), where=gain)
        best = better
        choices.append(chosen)
    at = [g - 1 for g in grid]
    pick = np.full(len(value), -1, dtype=np.intp)
    for i in range(len(value) - 1, -1, -1):
        size = int(choices[i][tuple(at)])
        pick[i] = size
        if size >= 0:
            at[int(kind[size])] -= int(count[size])
    return pick


def by_highs(value: Floats, kind: Ints, count: Floats, room: Floats, gap: float = 1e-6) -> Ints:
    """The integer program as HiGHS solves it; single-threaded, so always the same answer."""
    import highspy

    jobs, sizes = np.nonzero(np.isfinite(value) & (value > 0.0))
    n, rows, kinds = len(jobs), len(value), len(room)
    pick = np.full(rows, -1, dtype=np.intp)
    if not n:
        return pick
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = n, rows + kinds
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = value[jobs, sizes]
    model.col_lower_, model.col_upper_ = np.zeros(n), np.ones(n)
    model.row_lower_ = np.full(rows + kinds, -highspy.kHighsInf)
    model.row_upper_ = np.concatenate([np.ones(rows), room])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, 2 * n + 1, 2)
    model.a_matrix_.index_ = np.stack([jobs, rows + kind[sizes]], axis=1).ravel()
    model.a_matrix_.value_ = np.stack([np.ones(n), count[sizes]], axis=1).ravel()
    model.integrality_ = [highspy.HighsVarType.kInteger] * n
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_rel_gap", gap)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise WeftError(f"HiGHS ended with {solver.getModelStatus()}")
    x = np.array(solver.getSolution().col_value)
    for at in np.flatnonzero(x > 0.5):
        pick[jobs[at]] = sizes[at]
    return pick
