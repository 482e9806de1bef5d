"""Shockwave on the authors' canonical trace, beside the results that they ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from weft_papers.shockwave.published.replay import ReplayOutcome, run

pytestmark = pytest.mark.data
MAX_MIN = "authors/gavel:reset=1000,round=120"


def canonical(data: Callable[[str], Path], policy: str) -> ReplayOutcome:
    return run(data("shockwave"), 120, policy)


def test_max_min_fairness_is_as_in_their_simulator(data: Callable[[str], Path]) -> None:
    outcome = canonical(data, MAX_MIN)

    assert outcome.makespan == pytest.approx(33_208, rel=0.02)
    assert outcome.jct == pytest.approx(11_274, rel=0.02)
    assert outcome.rho == pytest.approx(2.95, rel=0.02)


def test_allox_of_their_repository_is_as_in_their_simulator(data: Callable[[str], Path]) -> None:
    outcome = canonical(data, "allox, as theirs")

    assert outcome.makespan == pytest.approx(32_489, rel=0.02)
    assert outcome.jct == pytest.approx(9_926, rel=0.02)
    assert outcome.unfair == pytest.approx(27.5, abs=2.0)


@pytest.mark.slow
def test_shockwave_is_as_they_ship_it(data: Callable[[str], Path]) -> None:
    outcome = canonical(data, "authors/shockwave")

    assert outcome.makespan == pytest.approx(24_197, rel=0.05)
    assert outcome.jct == pytest.approx(9_958, rel=0.05)
    assert outcome.rho <= 1.78
    assert outcome.unfair == pytest.approx(5.0, abs=2.0)


@pytest.mark.slow
def test_weight_on_shorter_jobs_is_fairer_and_faster_than_shockwave(
    data: Callable[[str], Path],
) -> None:
    outcome = canonical(data, "shockwave:shorter=2")

    assert outcome.rho <= 1.78
    assert outcome.jct <= 0.9 * 9_958
    assert outcome.makespan == pytest.approx(24_197, rel=0.05)
