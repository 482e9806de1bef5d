"""Linear programs against brute force over their corners."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.state.cells import Floats
from weft.solve.linear_program import NoSolution, Sparse, maximise


def corners(matrix: Floats, limits: Floats) -> list[Floats]:
    """Every vertex of {x >= 0, matrix x <= limits}: as many tight rows as variables."""
    n = matrix.shape[1]
    rows = np.vstack([matrix, -np.eye(n)])
    sides = np.concatenate([limits, np.zeros(n)])
    points = []
    for chosen in combinations(range(len(rows)), n):
        tight = rows[list(chosen)]
        if abs(np.linalg.det(tight)) > 1e-9:
            x = np.linalg.solve(tight, sides[list(chosen)])
            if (rows @ x <= sides + 1e-7).all():
                points.append(x)
    return points


numbers = st.integers(0, 9).map(float)
programs = st.integers(1, 3).flatmap(
    lambda n: st.tuples(
        st.lists(numbers, min_size=n, max_size=n),
        st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=1, max_size=3),
    )
)


@given(programs, st.booleans())
def test_the_optimum_is_the_best_corner(
    program: tuple[list[float], list[list[float]]], interior: bool
) -> None:
    cost, rows = np.array(program[0]), np.array(program[1])
    n = len(cost)
    matrix = np.vstack([rows, np.eye(n)])
    limits = np.concatenate([np.full(len(rows), 12.0), np.full(n, 7.0)])

    optimum = maximise(cost, Sparse.of(matrix), limits, interior=interior)

    best = max(float(cost @ x) for x in corners(matrix, limits))
    assert optimum.value == pytest.approx(best, abs=1e-5)
    assert (matrix @ optimum.x <= limits + 1e-5).all()
    assert limits @ optimum.duals == pytest.approx(best, abs=1e-5)


def test_duals_are_the_worth_of_one_unit_more() -> None:
    matrix, limits = Sparse.of(np.array([[1.0, 1.0], [0.0, 1.0]])), np.array([3.0, 2.0])

    optimum = maximise(np.array([1.0, 2.0]), matrix, limits)

    assert optimum.x.tolist() == [1.0, 2.0]
    assert optimum.duals.tolist() == [1.0, 1.0]


def test_bounds_are_kept() -> None:
    matrix, limits = Sparse.of(np.array([[1.0, 1.0]])), np.array([10.0])
    low, high = np.array([2.0, 0.0]), np.array([np.inf, 3.0])

    optimum = maximise(np.array([-1.0, 1.0]), matrix, limits, low=low, high=high)

    assert optimum.x.tolist() == [2.0, 3.0]


def test_entries_at_one_place_add_up() -> None:
    twice = Sparse(np.array([0, 0]), np.array([0, 0]), np.array([1.0, 1.0]), (1, 1))

    assert maximise(np.ones(1), twice, np.array([4.0])).x.tolist() == [2.0]


def test_matrices_are_put_together() -> None:
    first, other = Sparse.of(np.array([[1.0, 2.0]])), Sparse.of(np.array([[0.0, 3.0]]))

    whole = first.above(other.scaled(np.array([-1.0]))).beside(np.array([0.0, 5.0]))

    starts, rows, values = whole.by_column()
    assert whole.shape == (2, 3)
    assert (starts.tolist(), rows.tolist()) == ([0, 1, 3, 4], [0, 0, 1, 1])
    assert values.tolist() == [1.0, 2.0, -3.0, 5.0]


def test_an_infeasible_program_says_so() -> None:
    matrix = Sparse.of(np.array([[1.0], [-1.0]]))

    with pytest.raises(NoSolution, match="1 variables and 2 limits is infeasible"):
        maximise(np.ones(1), matrix, np.array([1.0, -2.0]))


def test_an_unbounded_program_says_so() -> None:
    with pytest.raises(NoSolution, match="unbounded"):
        maximise(np.ones(1), Sparse.of(np.array([[-1.0]])), np.array([1.0]))


def test_no_variables_is_no_trouble() -> None:
    nothing = Sparse.of(np.zeros((2, 0)))

    assert maximise(np.zeros(0), nothing, np.ones(2)).value == 0.0
    with pytest.raises(NoSolution, match="without variables"):
        maximise(np.zeros(0), nothing, np.array([-1.0, 1.0]))


def test_the_middle_of_answers_that_are_worth_the_same_touches_no_limit() -> None:
    """Two that share one unit, each with a least part: nothing is gained, everything is free."""
    matrix = np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    optimum = maximise(np.zeros(2), Sparse.of(matrix), np.array([1.0, -0.1, -0.2]), interior=True)

    assert optimum.x[0] > 0.15
    assert optimum.x[1] > 0.25
    assert optimum.x.sum() < 0.95
