"""From a finished run to an outcome: two jobs, every number by hand."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest

from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.scheduler import Scheduler
from weft.perf.replay import Replay
from weft.policies.fifo import Fifo
from weft.sim.collect import SERIES_POINTS, RunCounts, collect
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.sim.result import Outcome, Result


def outcome(cluster: str = "1x1:v100") -> Outcome:
    """a runs 0..100; b comes at 10 and runs 100..150."""
    machines = parse_cluster(cluster)
    trace = Trace(
        "two", ((Job(JobId("a")), Truth(100.0)), (Job(JobId("b"), 10.0, Demand(1)), Truth(50.0)))
    )
    physics = Physics(trace, Replay(0.0))
    driver = Simulation(Scheduler(Fifo(), machines), physics, machines)
    driver.run()
    return collect("fifo", "none", physics, driver.counts, machines, wall_s=1.23456)


def test_the_metrics_are_those_of_the_schedule() -> None:
    metrics = outcome().metrics

    hours = {
        "avg_jct_h": 120.0,
        "p50_jct_h": 140.0,
        "p99_jct_h": 140.0,
        "max_jct_h": 140.0,
        "makespan_h": 150.0,
        "avg_queue_h": 45.0,
        "gpu_hours_per_job": 75.0,
    }
    for name, seconds in hours.items():
        assert metrics[name] == pytest.approx(seconds / 3600.0), name
    counts = {"jobs": 2, "finished": 2, "failed": 0, "max_contention": 2, "preemptions": 0}
    assert {name: metrics[name] for name in counts} == counts
    assert metrics["restarts_per_job"] == 0.0
    assert metrics["utilization"] == pytest.approx(1.0)
    assert metrics["avg_contention"] == pytest.approx(240.0 / 150.0)
    # b sees (140 + 90) / 140 jobs, so alone it would take 50 times that.
    assert metrics["worst_ftf"] == pytest.approx(140.0 / (50.0 * 230.0 / 140.0))
    assert metrics["unfair_fraction"] == 0.5


def test_the_series_shows_who_waits_and_what_is_used() -> None:
    series = outcome().series

    assert len(series.time_s) == SERIES_POINTS
    assert (series.time_s[0], series.time_s[-1]) == (0.0, 150.0)
    inside = series.time_s < 150.0
    assert set(series.used[inside]) == {1.0}
    waiting = (series.time_s >= 10.0) & (series.time_s < 100.0)
    assert set(series.waiting[waiting]) == {1.0}
    assert set(series.waiting[inside & ~waiting]) == {0.0}


def test_the_timeline_has_a_bar_for_each_stretch_on_each_gpu() -> None:
    bars = [(b.node, b.gpu, b.job, b.start_s, b.end_s) for b in outcome().timeline]

    assert bars == [("v100-0", 0, "a", 0.0, 100.0), ("v100-0", 0, "b", 100.0, 150.0)]
    assert not outcome("33x4:v100").timeline


def test_bars_are_a_sequence_of_bars() -> None:
    bars = outcome().timeline

    assert (len(bars), bars[0], bars[-1]) == (2, *bars)
    assert bars[1:] == (bars[1],)
    assert pickle.loads(pickle.dumps(bars)) == bars
    with pytest.raises(IndexError):
        bars[2]


def test_an_outcome_reads_like_the_contract() -> None:
    done = outcome()
    shown = done.as_dict(per_job=True)

    assert done.avg_jct_h == shown["avg_jct_h"] or math.isclose(
        done.avg_jct_h, shown["avg_jct_h"], rel_tol=1e-8
    )
    assert shown["wall_s"] == 1.235
    assert shown["predictor"] == "none"
    assert shown["per_job"][1] == {
        "id": "b",
        "submit_s": 10,
        "start_s": 100,
        "end_s": 150,
        "restarts": 0,
        "gpu_s": 50,
        "ftf": 1.70434783,
        "static_ftf": 1.4,
        "held": [[100, 150, 1]],
    }
    json.dumps(shown, allow_nan=False)
    with pytest.raises(AttributeError):
        _ = done.no_such_metric


def test_without_timing_nothing_depends_on_the_machine() -> None:
    first, other = outcome().as_dict(timing=False), outcome().as_dict(timing=False)

    assert first == other
    assert first["wall_s"] is None


def test_a_job_that_never_ran_shows_as_null() -> None:
    trace = Trace("one", ((Job(JobId("a")), Truth(1.0)),))
    machines = parse_cluster("1x1:t4")

    done = collect("p", "none", Physics(trace, Replay()), RunCounts(), machines, 0.0)

    row = done.as_dict(per_job=True)["per_job"][0]
    assert (row["start_s"], row["end_s"]) == (None, None)
    assert (done.metrics["failed"], done.metrics["finished"]) == (1, 0)
    assert done.per_job.jct_s.size == 0


def test_seeds_are_averaged_and_kept_beside_their_mean() -> None:
    single = outcome()
    result = Result("0", "two", "1x1:v100", (0, 1), {"fifo": (single, single)})

    shown = result["policies"]["fifo"]

    assert result["seeds"] == [0, 1]
    assert len(shown["by_seed"]) == 2
    assert shown["makespan_h"] == pytest.approx(150.0 / 3600.0)
    assert result.mean("fifo", "makespan_h") == pytest.approx(150.0 / 3600.0)
    assert set(result) == {
        *("weft", "workload", "cluster", "gpus", "offered_load", "seed", "seeds", "policies")
    }
    assert len(result) == 8


def test_waiting_is_never_below_zero() -> None:
    assert np.min(outcome("2x1:v100").series.waiting) == 0.0
