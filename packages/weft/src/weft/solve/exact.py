"""Exact multiple-choice knapsack: by dynamic programming where capacities are small, by HiGHS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import WeftError
from weft.core.state.cells import Floats
from weft.native import compiled

Ints = NDArray[np.intp]


def by_dynamic_programming(value: Floats, kind: Ints, count: Floats, room: Floats) -> Ints:
    """One pass a job over the grid of what is left of each kind."""
    return np.array(fill_grid(value, kind, count, room), dtype=np.intp)


@compiled
def fill_grid(value: Floats, kind: Ints, count: Floats, room: Floats) -> list[int]:
    """Fill the grid in plain Python; return a list."""
    kinds, counts = kind.tolist(), count.tolist()
    asked = [
        [
            (size, kinds[size], counts[size], worth)
            for size, worth in enumerate(row)
            if 0.0 < worth < np.inf
        ]
        for row in value.tolist()
    ]
    useful = [0.0] * len(room)
    for row in asked:
        for k in {k for _, k, _, _ in row}:
            useful[k] += max(c for _, of, c, _ in row if of == k)
    grid = tuple(int(min(r, u) + 1e-9) + 1 for r, u in zip(room.tolist(), useful, strict=True))
    offers = [
        [(size, k, int(c), worth) for size, k, c, worth in row if c < grid[k]] for row in asked
    ]
    tables = [np.zeros(grid)]
    for offer in offers:
        before, after = tables[-1], tables[-1].copy()
        for _, k, c, worth in offer:
            axes = (slice(None),) * k
            here = after[(*axes, slice(c, None))]
            np.maximum(here, before[(*axes, slice(0, grid[k] - c))] + worth, out=here)
        tables.append(after)
    return _trace(offers, tables, [g - 1 for g in grid])


def _trace(
    offers: list[list[tuple[int, int, int, float]]], tables: list[Floats], left: list[int]
) -> list[int]:
    """Return the choice of each job on the way to the best; of equals nothing, then the first."""
    pick = [-1] * len(offers)
    for i in range(len(offers) - 1, -1, -1):
        reached = tables[i + 1][tuple(left)] - 1e-12
        if tables[i][tuple(left)] >= reached:
            continue
        for size, k, c, worth in offers[i]:
            rest = [*left[:k], left[k] - c, *left[k + 1 :]]
            if rest[k] >= 0 and tables[i][tuple(rest)] + worth >= reached:
                pick[i], left = size, rest
                break
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
