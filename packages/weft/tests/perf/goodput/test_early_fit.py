"""The fit that stops early, against numbers of the authors' optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base.step_fit import FitRow
from weft.base.step_times import TINY, StepTime
from weft.perf.goodput.early_fit import FitLoss, early_fit
from weft.perf.goodput.fit import fit

TRUE = StepTime(0.05, 0.001, 0.04, 0.002, 0.02, 0.001, 2.0)
ONE = ((1, 1, 128),)
TWO = ((1, 1, 64), *ONE)
NODE = (*TWO, (1, 2, 128), (1, 4, 128))
ALL = (*NODE, (2, 8, 128), (2, 8, 256), (4, 16, 128))


def measured(shapes: tuple[tuple[int, int, int], ...], speed: float = 1.0) -> list[FitRow]:
    return [
        FitRow(n, k, m, float(TRUE.grad(m)) / speed, float(TRUE.step(n, k, m)) / speed)
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
    fitted = early_fit(measured(shapes))

    assert tuple(fitted) == pytest.approx(expected, rel=5e-4)


def test_stopping_early_predicts_worse_than_the_best_fit() -> None:
    rows = measured(NODE)
    true = float(TRUE.throughput(1, 4, 128))

    early, best = early_fit(rows), fit(rows)

    assert early.throughput(1, 4, 128) == pytest.approx(2526.75, rel=1e-3)
    assert best.throughput(1, 4, 128) == pytest.approx(true, rel=0.01)


@given(
    st.lists(st.floats(-5.0, 0.0), min_size=6, max_size=6), st.floats(1.01, 9.0), st.integers(0, 6)
)
def test_slopes_are_those_of_the_loss(logs: list[float], gamma: float, which: int) -> None:
    loss = FitLoss(measured(ALL, speed=1.3))
    at = np.array([*np.exp(logs), gamma])
    step = np.zeros(7)
    step[which] = 1e-6 * at[which]

    rise = (loss(at + step)[0] - loss(at - step)[0]) / (2.0 * step[which])

    assert loss(at)[1][which] == pytest.approx(rise, rel=1e-3, abs=1e-5)
