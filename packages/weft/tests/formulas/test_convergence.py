"""Curves of falling losses."""

from __future__ import annotations

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.formulas.training.convergence import FAMILIES, Curve

CURVES = {
    "sgd": Curve("sgd", (0.1, 1.0, 0.2), 100.0),
    "sublinear": Curve("sublinear", (0.01, 0.1, 1.0, 0.1), 100.0),
    "linear": Curve("linear", (0.9, 5.0, 0.3), 100.0),
    "power": Curve("power", (2.0, 0.5, 0.1), 100.0),
}


@pytest.mark.parametrize(
    ("family", "k", "loss"),
    [
        ("sgd", 10.0, 0.7),
        ("sublinear", 5.0, 1 / 1.75 + 0.1),
        ("linear", 5.0, 1.3),
        ("power", 3.0, 1.1),
    ],
)
def test_the_published_forms(family: str, k: float, loss: float) -> None:
    assert float(CURVES[family].at(k)) == pytest.approx(loss)


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_fall_and_reach_their_marks_in_order(family: str) -> None:
    curve = CURVES[family]
    first, last = float(curve.at(0.0)), float(curve.at(100.0))

    marks = [curve.reached(part) for part in (0.5, 0.9, 0.95, 1.0)]

    assert (np.diff(curve.at(np.arange(101.0))) < 0.0).all()
    assert marks == sorted(marks)
    assert float(curve.at(marks[1])) == pytest.approx(first - 0.9 * (first - last))
    assert marks[3] == pytest.approx(100.0)


def test_scatter_depends_on_the_seed_alone() -> None:
    curve = Curve("sgd", (0.1, 1.0, 0.2), 1000.0, noise=0.1, seed=4)

    whole = curve.measured(0, 600)

    assert (whole[250:300] == curve.measured(250, 299)).all()
    assert (
        whole != Curve("sgd", (0.1, 1.0, 0.2), 1000.0, noise=0.1, seed=5).measured(0, 600)
    ).any()
    error = (whole - curve.at(np.arange(601.0))) / (curve.at(np.arange(601.0)) - curve.at(1000.0))
    assert error.std() == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("wrong", [("cubic", (1.0,), 9.0), ("sgd", (1.0,), 9.0)])
def test_unknown_forms_are_refused(wrong: tuple[str, tuple[float, ...], float]) -> None:
    with pytest.raises(InvalidConfig, match=wrong[0]):
        Curve(*wrong)


def test_a_job_without_iterations_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        Curve("sgd", (0.1, 1.0, 0.2), 0.0)
