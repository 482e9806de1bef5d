"""Linear programs: maximise c x subject to A x <= b and bounds, solved by HiGHS.

Same program, same answer: one thread, no time limit. The matrix is handed over whole, by column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.core.errors import WeftError
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen


class NoSolution(WeftError):  # noqa: N818 - reads better at the call site
    """A linear program that is infeasible or unbounded."""


@frozen
class Sparse:
    """A matrix as (row, column, value) entries; entries at one place add up."""

    rows: Rows
    columns: Rows
    values: Floats
    shape: tuple[int, int]

    @classmethod
    def of(cls, dense: Floats) -> Sparse:
        rows, columns = np.nonzero(dense)
        return cls(rows, columns, dense[rows, columns], (dense.shape[0], dense.shape[1]))

    def scaled(self, by: Floats) -> Sparse:
        """Each row times its factor."""
        return Sparse(self.rows, self.columns, self.values * by[self.rows], self.shape)

    def above(self, other: Sparse) -> Sparse:
        """The rows of another matrix below these; the wider one says how many columns."""
        return Sparse(
            np.concatenate([self.rows, other.rows + self.shape[0]]),
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.values, other.values]),
            (self.shape[0] + other.shape[0], max(self.shape[1], other.shape[1])),
        )

    def beside(self, column: Floats) -> Sparse:
        """Add a column at the right."""
        rows = np.flatnonzero(column)
        return Sparse(
            np.concatenate([self.rows, rows]),
            np.concatenate([self.columns, np.full(len(rows), self.shape[1])]),
            np.concatenate([self.values, column[rows]]),
            (self.shape[0], self.shape[1] + 1),
        )

    def by_column(self) -> tuple[Rows, Rows, Floats]:
        """Return the starts of columns, and their rows and values, no place twice."""
        place = self.columns * self.shape[0] + self.rows
        unique, at = np.unique(place, return_inverse=True)
        values = np.bincount(at.reshape(-1), self.values, len(unique)).astype(float)
        columns, rows = np.divmod(unique, max(self.shape[0], 1))
        starts = np.searchsorted(columns, np.arange(self.shape[1] + 1))
        return starts, rows, values


@frozen
class Optimum:
    """The best `x`, what it is worth, and what one unit more of each limit would add."""

    x: Floats
    value: float
    duals: Floats


def maximise(
    cost: Floats,
    matrix: Sparse,
    limits: Floats,
    *,
    low: Floats | None = None,
    high: Floats | None = None,
    interior: bool = False,
    whole: bool | Bools = False,
    gap: float | None = None,
    nodes: int | None = None,
) -> Optimum:
    """The best x with `matrix` x <= `limits` and `low` <= x <= `high`; 0 and none by default.

    Where several are best, the answer is a corner of their set; `interior` asks for a point in
    the middle, as solvers without a simplex method give. `whole` lets x, or those of it that are
    named, take whole numbers only; then the answer may miss the best by a part `gap` of it, and is
    the best known after that many `nodes` of the search.
    """
    import highspy  # 0.13 s that only optimisers should pay

    count, n = matrix.shape
    if n == 0:
        return _empty(limits)
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, choice in _OPTIONS.items():
        solver.setOptionValue(option, choice)
    starts, rows, values = matrix.by_column()
    solver.passModel(
        n,
        count,
        len(rows),
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMaximize),
        0.0,
        np.asarray(cost, dtype=float),
        np.zeros(n) if low is None else np.asarray(low, dtype=float),
        np.full(n, np.inf) if high is None else np.asarray(high, dtype=float),
        np.full(count, -np.inf),
        np.asarray(limits, dtype=float),
        starts.astype(np.int32),
        rows.astype(np.int32),
        values,
        np.broadcast_to(np.asarray(whole, dtype=np.int32), n).copy(),
    )
    if gap is not None:
        solver.setOptionValue("mip_rel_gap", gap)
    if nodes is not None:
        solver.setOptionValue("mip_max_nodes", nodes)
    status = _run(solver, _INTERIOR if interior else {})
    if interior and status != highspy.HighsModelStatus.kOptimal:
        status = _run(solver, _CORNER)  # tiny programs may have no middle
    searched = status == highspy.HighsModelStatus.kSolutionLimit and nodes is not None
    known = searched and solver.getInfo().primal_solution_status == highspy.kSolutionStatusFeasible
    if status != highspy.HighsModelStatus.kOptimal and not known:
        text = solver.modelStatusToString(status).lower()
        raise NoSolution(f"a linear program of {n} variables and {count} limits is {text}")
    solution = solver.getSolution()
    duals = np.asarray(solution.row_dual, dtype=float)
    return Optimum(np.asarray(solution.col_value, dtype=float), solver.getObjectiveValue(), duals)


_OPTIONS = {"output_flag": False, "threads": 1, "random_seed": 0}


# Presolving settles variables that cost nothing at one of their limits: no middle.
_INTERIOR = {"solver": "ipm", "run_crossover": "off", "presolve": "off"}
_CORNER = {"solver": "choose", "run_crossover": "on", "presolve": "choose"}


def _run(solver: Any, options: Mapping[str, str]) -> Any:
    for option, choice in options.items():
        solver.setOptionValue(option, choice)
    solver.run()
    return solver.getModelStatus()


def _empty(limits: Floats) -> Optimum:
    if (limits < 0.0).any():
        raise NoSolution("a linear program without variables is infeasible")
    return Optimum(np.zeros(0), 0.0, np.zeros(len(limits)))
