"""What people feel of a schedule: waits, slowdowns, and GPU time that did nothing."""

from __future__ import annotations

import pytest

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.report.tables import result_tables


def trace(*jobs: tuple[float, float]) -> Trace:
    """Jobs of one GPU by submission and length."""
    return Trace(
        "two",
        tuple((Job(JobId(f"j{i}"), at, Demand(1)), Truth(s)) for i, (at, s) in enumerate(jobs)),
    )


def test_waits_and_slowdowns_of_three_jobs_on_one_gpu() -> None:
    metrics = weft.simulate(trace((0, 100), (0, 4), (0, 900)), "fifo", "1x1:v100")["policies"][
        "fifo"
    ]

    assert metrics["avg_queue_h"] == pytest.approx((0 + 100 + 104) / 3 / 3600)
    assert metrics["p95_queue_h"] == pytest.approx(104 / 3600)
    assert metrics["short_queue_h"] == pytest.approx(100 / 3600)
    assert metrics["slowdown_10s"] == pytest.approx((1 + 10.4 + 1004 / 900) / 3)
    assert metrics["slowdown_10min"] == pytest.approx((1 + 1 + 1004 / 900) / 3)
    assert metrics["gpu_hours_wasted"] == 0.0


def test_a_restart_wastes_the_gpu_time_that_it_takes() -> None:
    jobs = trace((0, 1000), (50, 10))

    metrics = weft.simulate(jobs, "srtf", "1x1:v100", restart_cost=30.0)["policies"]["srtf"]

    assert metrics["preemptions"] == 1
    assert metrics["gpu_hours_wasted"] == pytest.approx(30 / 3600)


def test_differences_of_large_times_are_no_waste() -> None:
    jobs = trace(*((1e7 / 3 * i, 1e4 / 7) for i in range(1, 20)))

    metrics = weft.simulate(jobs, "fifo", "1x1:v100")["policies"]["fifo"]

    assert metrics["gpu_hours_wasted"] == 0.0


def test_equal_jobs_have_no_short_ones_among_them() -> None:
    metrics = weft.simulate(trace((0, 60), (0, 60)), "fifo", "1x1:v100")["policies"]["fifo"]

    assert metrics["short_queue_h"] == 0.0


def test_waits_have_a_table_of_their_own_in_80_columns() -> None:
    outcomes = weft.compare("tiny-20", ["fifo", "srtf"]).outcomes

    tables = result_tables(outcomes, 80, "waits")

    headings = [str(column.header) for table in tables for column in table.columns]
    assert {"avg JCT", "avg wait", "p95 wait", "short wait", "slowdown 10 s"} <= set(headings)
    assert {"slowdown 10 min", "worst FTF", "GPU-h wasted"} <= set(headings)
    assert "makespan" not in headings
