"""Conditioning on survival, shrinkage and censoring, by worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from weft.predict.alike.mixture import WeightedLengths, decayed, mean, mix, prior, quantile

TEN = np.array([60.0, 90, 120, 300, 600, 900, 1800, 3600, 7200, 14400])
P = (0.1, 0.5, 0.9)


def even(*x: float) -> WeightedLengths:
    return WeightedLengths(np.array(x, dtype=float), np.ones(len(x)))


@pytest.mark.parametrize(
    ("attained", "left", "average"),
    [
        (0.0, [60, 600, 7200], 2907.0),
        (200.0, [100, 1600, 14200], 3914.2857),
        (1000.0, [800, 2600, 13400], 5750.0),
        (5000.0, [2200, 2200, 9400], 5800.0),
    ],
)
def test_what_a_job_has_outlived_is_dropped(
    attained: float, left: list[float], average: float
) -> None:
    blended, _ = mix([even(*TEN)], attained, 0.0, prior(attained))

    assert (quantile(blended, P) - attained).tolist() == left
    assert mean(blended) - attained == pytest.approx(average, abs=1e-3)


def test_beyond_all_samples_a_job_runs_as_long_again() -> None:
    blended, parts = mix([even(*TEN)], 14400.0, 0.0, prior(14400.0))

    assert parts == [0.0]
    assert (quantile(blended, P) - 14400.0).tolist() == pytest.approx([1600.0, 14400.0, 129600.0])


CHILD = even(100, 200)
PARENT = even(50, 100, 100, 400, 800, 1600, 3200, 6400)


def test_a_group_with_few_ends_leaves_most_to_the_next() -> None:
    blended, parts = mix([CHILD, PARENT], 0.0, 4.0)

    assert parts == pytest.approx([1 / 3, 2 / 3])
    assert quantile(blended, P).tolist() == [100.0, 200.0, 3200.0]
    assert mean(blended) == pytest.approx(1104.1667, abs=1e-3)


def test_groups_shrink_after_conditioning_by_their_survivors() -> None:
    blended, parts = mix([CHILD, PARENT], 150.0, 4.0)

    assert parts == pytest.approx([0.2, 0.8])
    assert (quantile(blended, P) - 150.0).tolist() == [50.0, 650.0, 6250.0]
    assert mean(blended) - 150.0 == pytest.approx(1874.0)


def test_weights_halve_with_every_half_life_of_ends() -> None:
    x, w = np.array([100.0, 400.0, 1600.0]), decayed(3, 1.0)

    assert w.tolist() == [0.25, 0.5, 1.0]
    assert mean(WeightedLengths(x, w)) == pytest.approx(1042.857, abs=1e-3)
