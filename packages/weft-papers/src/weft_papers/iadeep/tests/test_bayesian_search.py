"""Search over a grid with a Gaussian process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft_papers.iadeep.bayesian_search import (
    Point,
    beta,
    has_stalled,
    joint_grid,
    next_point,
    posterior,
)


def everywhere(points: Floats) -> Bools:
    return np.ones(len(points), dtype=bool)


def nowhere(points: Floats) -> Bools:
    return np.zeros(len(points), dtype=bool)


AXES = (list(range(20, 64)), list(range(340, 1024, 21)))


def test_the_belief_passes_through_what_was_measured_and_is_unsure_elsewhere() -> None:
    seen = np.array([[0.0], [0.5], [1.0]])
    values = np.array([3.0, 1.0, 2.0])

    belief = posterior(seen, values, np.array([[0.0], [0.5], [1.0], [0.25], [3.0]]))

    assert belief.mean[:3] == pytest.approx(values, abs=0.02)
    assert belief.deviation[:3] == pytest.approx(np.zeros(3), abs=0.05)
    assert belief.mean[4] == pytest.approx(values.mean(), abs=0.01)
    assert belief.deviation[4] == pytest.approx(values.std(), rel=0.01)
    assert belief.deviation[3] < belief.deviation[4]


def test_equal_measurements_are_no_trouble() -> None:
    belief = posterior(np.array([[0.0], [1.0]]), np.array([2.0, 2.0]), np.array([[0.5]]))

    assert belief.mean[0] == 2.0


def test_hope_grows_with_points_and_measurements() -> None:
    assert beta(1000, 1) == pytest.approx((2 * np.log(1000 * np.pi**2 / 0.6)) ** 0.5)
    assert beta(1000, 1) < beta(1000, 5) < beta(4000, 5)


def test_a_joint_grid_has_at_most_so_many_points_and_keeps_its_corners() -> None:
    points = joint_grid([range(44)] * 3, most=4096)

    assert len(points) <= 4096
    assert points[0].tolist() == [0, 0, 0]
    assert points[-1].tolist() == [43, 43, 43]


def test_it_finds_the_best_of_a_bowl_in_few_measurements() -> None:
    def cost(point: Point) -> float:
        return ((point[0] - 30) / 44) ** 2 + ((point[1] - 700) / 684) ** 2 + 1.0

    seen: list[Point] = [(32, 508)]
    values = [cost(seen[0])]
    for _ in range(12):
        point = next_point(AXES, seen, values, everywhere)
        assert point is not None
        seen.append(point)
        values.append(cost(point))

    assert min(values) < 1.01


@examples(25)
@given(
    st.lists(st.floats(1.0, 9.0), min_size=1, max_size=6),
    st.integers(400, 900),
    st.integers(0, 100),
)
def test_it_never_asks_for_what_is_not_feasible_or_was_measured(
    values: list[float], limit: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    grid = joint_grid(AXES)
    seen = [
        (int(grid[i][0]), int(grid[i][1]))
        for i in rng.choice(len(grid), len(values), replace=False)
    ]

    point = next_point(AXES, seen, values, lambda p: p.sum(axis=1) <= limit)

    assert point is not None
    assert sum(point) <= limit
    assert point not in seen


def test_it_ends_when_everything_was_measured() -> None:
    assert next_point(([1], [2]), [(1, 2)], [1.0], everywhere) is None
    assert next_point(([1], [2]), [(1, 1)], [1.0], nowhere) is None


def test_patience_ends_when_nothing_gets_better() -> None:
    assert not has_stalled([2.0, 2.0], 2, 0.01)
    assert has_stalled([2.0, 2.0, 1.99], 2, 0.01)
    assert not has_stalled([2.0, 2.0, 1.9], 2, 0.01)
