"""The fit that stops early, against numbers of the authors' optimiser; and the optimiser itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.table import Floats
from weft.perf.goodput.early_fit import Loss, early_fit
from weft.perf.goodput.fit import Row, fit
from weft.perf.goodput.lbfgsb import Box, minimise
from weft.perf.goodput.line_search import ENOUGH, FLATTER, Point, step_along
from weft.perf.goodput.model import TINY, StepTime

TRUE = StepTime(0.05, 0.001, 0.04, 0.002, 0.02, 0.001, 2.0)
ONE = ((1, 1, 128),)
TWO = ((1, 1, 64), *ONE)
NODE = (*TWO, (1, 2, 128), (1, 4, 128))
ALL = (*NODE, (2, 8, 128), (2, 8, 256), (4, 16, 128))
OPEN = Box(np.full(2, -np.inf), np.full(2, np.inf))


def measured(shapes: tuple[tuple[int, int, int], ...], speed: float = 1.0) -> list[Row]:
    return [
        Row(n, k, m, float(TRUE.grad(m)) / speed, float(TRUE.step(n, k, m)) / speed)
        for n, k, m in shapes
    ]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (ONE, (0.089, 0.000695312, 1.1 * TINY, 1.1 * TINY, TINY, TINY, 1.001)),
        (TWO, (0.05, 0.001, 1.1 * TINY, 1.1 * TINY, TINY, TINY, 1.001)),
        (NODE, (0.02274, 0.0012306, 0.02465, 0.0023568, 0.02241, 0.0021425, 1.060)),
        (ALL, (0.0500011, 0.00099999, 0.0037171, 0.0014862, 0.0083578, TINY, 1.2198)),
    ],
    ids=("one", "two", "node", "all"),
)
def test_it_stops_where_the_authors_optimiser_does(
    shapes: tuple[tuple[int, int, int], ...], expected: tuple[float, ...]
) -> None:
    found = early_fit(measured(shapes))

    assert tuple(found) == pytest.approx(expected, rel=5e-4)


def test_stopping_early_foretells_worse_than_the_best_fit() -> None:
    rows = measured(NODE)
    true = float(TRUE.throughput(1, 4, 128))

    early, best = early_fit(rows), fit(rows)

    assert early.throughput(1, 4, 128) == pytest.approx(2526.75, rel=1e-3)
    assert best.throughput(1, 4, 128) == pytest.approx(true, rel=0.01)


@given(
    st.lists(st.floats(-5.0, 0.0), min_size=6, max_size=6),
    st.floats(1.01, 9.0),
    st.integers(0, 6),
)
def test_slopes_are_those_of_the_loss(logs: list[float], gamma: float, which: int) -> None:
    loss = Loss(measured(ALL, speed=1.3))
    at = np.array([*np.exp(logs), gamma])
    step = np.zeros(7)
    step[which] = 1e-6 * at[which]

    rise = (loss(at + step)[0] - loss(at - step)[0]) / (2.0 * step[which])

    assert loss(at)[1][which] == pytest.approx(rise, rel=1e-3, abs=1e-5)


# ---- the optimiser


def rosenbrock(x: Floats) -> tuple[float, Floats]:
    a, b = 1.0 - x[0], x[1] - x[0] ** 2
    return float(a * a + 100.0 * b * b), np.array([-2.0 * a - 400.0 * x[0] * b, 200.0 * b])


def test_a_curved_valley_is_followed_to_its_end() -> None:
    found = minimise(rosenbrock, np.array([-1.2, 1.0]), OPEN, 1e-10)

    assert found == pytest.approx([1.0, 1.0], abs=1e-4)


def test_the_best_point_inside_bounds_is_found() -> None:
    box = Box(np.array([-2.0, -np.inf]), np.array([0.5, np.inf]))

    found = minimise(rosenbrock, np.array([-1.2, 1.0]), box, 1e-10)

    assert found == pytest.approx([0.5, 0.25], abs=1e-4)


@given(
    st.lists(st.floats(-3.0, 3.0), min_size=4, max_size=4),
    st.lists(st.floats(0.1, 10.0), min_size=4, max_size=4),
)
def test_a_bowl_ends_at_its_bottom_or_at_the_nearest_bound(
    bottom: list[float], steep: list[float]
) -> None:
    centre, curve = np.array(bottom), np.array(steep)
    box = Box(np.full(4, -1.0), np.full(4, 1.0))

    found = minimise(
        lambda x: (float(curve @ (x - centre) ** 2), 2.0 * curve * (x - centre)),
        np.zeros(4),
        box,
        1e-12,
    )

    assert found == pytest.approx(np.clip(centre, *box), abs=1e-4)


def test_a_variable_without_room_stays() -> None:
    box = Box(np.array([0.3, -1.0]), np.array([0.3, 1.0]))

    found = minimise(lambda x: (float(x @ x), 2.0 * x), np.array([5.0, 0.7]), box, 1e-12)

    assert found == pytest.approx([0.3, 0.0], abs=1e-6)


def test_a_tolerance_that_every_point_meets_moves_nothing() -> None:
    start = np.array([-1.2, 1.0])

    assert (minimise(rosenbrock, start, OPEN, 1e6) == start).all()


@pytest.mark.parametrize("start", [1e-3, 0.1, 1.0, 10.0])
def test_a_step_falls_enough_and_ends_flatter(start: float) -> None:
    def phi(t: float) -> Point:
        return Point(t, (t - 2.0) ** 4 + 0.5 * t, 4.0 * (t - 2.0) ** 3 + 0.5)

    first = phi(0.0)
    found = step_along(phi, first, start, 1e3)

    assert found is not None
    assert found.value <= first.value + ENOUGH * found.at * first.slope
    assert abs(found.slope) <= FLATTER * abs(first.slope)


def test_a_line_that_falls_forever_is_followed_as_far_as_allowed() -> None:
    found = step_along(lambda t: Point(t, -t, -1.0), Point(0.0, 0.0, -1.0), 1.0, 50.0)

    assert found is not None
    assert found.at == 50.0
