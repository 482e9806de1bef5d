"""Metrics of workloads with worth or losses."""

from __future__ import annotations

import pytest

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.formulas.training.convergence import Curve
from weft.sim.milestones import LossMilestones

CURVE = Curve("sgd", (1.0, 1.0, 0.0), 99.0)  # 1 / (1 + k): from 1 to 0.01


def trace(*jobs: tuple[Job, Truth]) -> Trace:
    return Trace("few", jobs)


def test_marks_are_passed_where_they_lie() -> None:
    marks = LossMilestones(trace((Job(JobId("a"), submitted=100.0), Truth(99.0, curve=CURVE))))

    marks.record_progress(0, 200.0, 0.0, 50.0, 0.5)

    # 90 % of the fall from 1 to 0.01 is at k = 8.174, at half speed 16.3 s after the start.
    assert marks.reached()[0.90] == pytest.approx([(200.0 - (50.0 - 8.17431) / 0.5) - 100.0])
    assert not marks.ahead


def test_times_to_quality_come_with_the_result_and_end_before_the_job_does() -> None:
    jobs = trace(
        (Job(JobId("a"), demand=Demand(1)), Truth(990.0, curve=CURVE)),
        (Job(JobId("b"), demand=Demand(1)), Truth(990.0, curve=CURVE)),
    )

    outcome = weft.simulate(jobs, "fifo", "1x1:v100").outcomes["fifo"][0]

    # The second waits for the first: 81.7 s of work, and the same after 990 s.
    assert outcome.metrics["avg_t90_h"] * 3600 == pytest.approx(81.7431 + 990.0 / 2, abs=1e-3)
    assert outcome.metrics["avg_t95_h"] > outcome.metrics["avg_t90_h"]


def test_worth_comes_with_the_result() -> None:
    hints = {"worth": 8.0, "haste": 1.0, "target_s": 150.0}
    jobs = trace(
        (Job(JobId("a"), demand=Demand(1), hints=hints), Truth(100.0)),
        (Job(JobId("b"), demand=Demand(1), hints={**hints, "haste": 0.0}), Truth(100.0)),
        (Job(JobId("c"), demand=Demand(1), hints=hints), Truth(100.0)),
    )

    metrics = weft.simulate(jobs, "fifo", "1x1:v100").outcomes["fifo"][0].metrics

    # The first ends in time, the second does not mind, the third starts after its target.
    assert metrics["total_utility"] == pytest.approx(8.0 + 4.0)
    assert metrics["admitted_fraction"] == pytest.approx(2 / 3)


def test_other_workloads_have_the_metrics_they_always_had() -> None:
    metrics = weft.simulate("tiny-20", "fifo").outcomes["fifo"][0].metrics

    assert not {"total_utility", "admitted_fraction", "avg_t90_h", "avg_t95_h"} & metrics.keys()
