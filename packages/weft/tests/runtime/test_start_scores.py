"""Ranges for starts become as wide as they must be for four of five to hold."""

from __future__ import annotations

import numpy as np
import pytest

from weft.app.insight.present import Estimate
from weft.core.events.event import Cancelled, Foretold, PolicyChanged, Started
from weft.core.model.job import JobId
from weft.core.spec.part_spec import PartSpec
from weft.runtime.records.start_scores import StartScores

JOB = JobId("j")


@pytest.mark.parametrize("bias", [0.3, 1.0, 6.0])
@pytest.mark.parametrize("believed", [0.0, 0.5, 1.5])
def test_four_of_five_hold_however_wrong_the_simulations_are(bias: float, believed: float) -> None:
    """Waits are log-normal with sigma 0.5; simulations are biased, too sure or too unsure."""
    rng = np.random.default_rng(3)
    scores = StartScores()
    for number in range(600):
        at = 100_000.0 * number
        after = tuple((3_000.0 * np.exp(believed * rng.standard_normal(12))).tolist())
        shown = Estimate(after, correction=scores.correction(at))
        low, mid, high = (shown.quantile(q) for q in (0.1, 0.5, 0.9))
        assert low is not None
        assert mid is not None
        assert high is not None
        scores.fold(at, Foretold(JOB, low, mid, high))
        waited = bias * 3_000.0 * float(np.exp(0.5 * rng.standard_normal()))
        scores.fold(at + waited, Started(JOB, 1))

    assert scores.made == 600
    assert 0.74 <= scores.kept / scores.made <= 0.86


@pytest.mark.parametrize("growth", [0.0, 0.02])
def test_ranges_that_are_open_at_once_do_not_overshoot(growth: float) -> None:
    """Jobs ask every two minutes and wait for an hour or more: many ranges are open at once."""
    rng = np.random.default_rng(0)
    scores, starts, widths = StartScores(), list[tuple[float, JobId]](), list[float]()
    for number in range(300):
        at, job = 120.0 * number, JobId(f"j{number}")
        for start in sorted(start for start in starts if start[0] <= at):
            scores.fold(start[0], Started(start[1], 1))
            starts.remove(start)
        after = tuple((3_000.0 * np.exp(0.5 * rng.standard_normal(12))).tolist())
        shown = Estimate(after, correction=scores.correction(at))
        low, mid, high = (shown.quantile(q) or 0.0 for q in (0.1, 0.5, 0.9))
        scores.fold(at, Foretold(job, low, mid, high))
        waited = 3_000.0 * (1.0 + growth * number) * float(np.exp(0.5 * rng.standard_normal()))
        starts.append((at + waited, job))
        widths.append((high + 60.0) / (low + 60.0))

    assert scores.made > 150
    assert scores.kept / scores.made >= 0.7
    assert np.median(widths) < 15.0
    assert max(widths) < 1_000.0


def test_a_job_that_still_waits_after_its_range_widens_the_next_one() -> None:
    scores = StartScores()
    scores.fold(0.0, Foretold(JOB, 10.0, 20.0, 30.0))

    before, after = scores.correction(29.0), scores.correction(100.0)
    scores.fold(500.0, Started(JOB, 1))

    assert before.below == 1.0
    assert after.above > 1.4 * before.above
    assert after.below < 1.0
    assert (scores.made, scores.kept) == (1, 0)


@pytest.mark.parametrize("over", [Cancelled(JOB), PolicyChanged(PartSpec("las"))])
def test_what_people_changed_does_not_count(over: Cancelled | PolicyChanged) -> None:
    scores = StartScores()
    scores.fold(0.0, Foretold(JOB, 10.0, 20.0, 30.0))
    scores.fold(5.0, over)

    scores.fold(5_000.0, Started(JOB, 1))

    assert scores.correction(9_000.0) == StartScores().correction(9_000.0)
    assert not scores.made


def test_a_range_of_few_simulations_covers_them_all() -> None:
    """Of twelve the second and the eleventh would hold nine of thirteen times."""
    estimate = Estimate(tuple(float(i) for i in range(1, 13)))

    assert (estimate.quantile(0.1), estimate.quantile(0.9)) == (1.0, 12.0)
