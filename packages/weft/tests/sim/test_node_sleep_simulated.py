"""Nodes that sleep while nobody needs them, in a simulation."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth

HOUR = 3600.0


def spread_out(gpus: int = 8) -> Trace:
    """A day with eight short jobs at once in the morning, then one that runs alone for hours."""
    rows = [(Job(JobId(f"m{i}"), 60.0 * i, Demand(8)), Truth(HOUR)) for i in range(8)]
    rows.append((Job(JobId("long"), 2 * HOUR, Demand(8)), Truth(20 * HOUR)))
    rows.append((Job(JobId("late"), 15 * HOUR, Demand(gpus)), Truth(HOUR)))
    return Trace("day", tuple(rows))


def run(trace: Trace, **more: Any) -> dict[str, float]:
    result = weft.simulate(trace, "fifo", "8x8:v100", restart_cost=0.0, **more)
    return dict(result.outcomes["fifo"][0].metrics)


def test_nodes_that_nobody_needs_sleep_and_nobody_waits_for_those_to_spare() -> None:
    metrics = run(spread_out(), sleep_nodes=2)

    # When the morning is over, after 80 minutes, all but two sleep; the end is after 22 hours.
    assert metrics["node_hours_asleep"] == pytest.approx(6 * (22.0 - 80.0 / 60.0))
    # Each of their GPUs would have drawn 40 W.
    assert metrics["kwh_saved"] == pytest.approx(metrics["node_hours_asleep"] * 8 * 0.04)
    assert metrics["wake_ups"] == 0
    assert metrics["boot_delay_h"] == 0.0


def test_who_needs_more_than_is_awake_waits_for_its_nodes_to_boot() -> None:
    awake, slept = run(spread_out(48)), run(spread_out(48), sleep_nodes=2, boot_s=300.0)

    assert slept["wake_ups"] == 1
    assert slept["boot_delay_h"] * HOUR == 300.0
    # Of ten jobs one starts 300 s later.
    assert abs((slept["avg_jct_h"] - awake["avg_jct_h"]) * HOUR - 30.0) < 0.01


def test_without_the_option_nothing_sleeps_and_nothing_is_told() -> None:
    assert "node_hours_asleep" not in {k: v for k, v in run(spread_out()).items() if v is not None}
