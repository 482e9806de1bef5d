"""Completion times of the simple orders, against known figures and a naive simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from tests.policies.counting import Count, Run
from weft.core.model.trace import Trace
from weft.traces.read import load

LIMITS = (3250.0, 7200.0)
LAS_TIME = "las:by=time,thresholds=3250/7200"
LAS_2D = "las:thresholds=3250/7200"


def average_jct_s(trace: Trace, policy: str, cluster: str) -> tuple[float, float]:
    result = weft.simulate(trace, policy, cluster, restart_cost=0.0)
    outcome = result.outcomes[policy][0]
    return float(outcome.per_job.jct_s.mean()), outcome.metrics["preemptions"]


def naive(trace: Trace, policy: str, gpus: int) -> Count:
    jobs = [Run(j.id, j.demand.gpus, j.submitted, t.length) for j, t in trace]
    place = {job.name: i for i, job in enumerate(jobs)}
    keys: dict[str, Callable[[Run], float]] = {
        "fifo": lambda _: 0.0,
        "fifo:backfill=true": lambda _: 0.0,
        "srtf": lambda j: j.length - j.ran,
        "srsf": lambda j: (j.length - j.ran) * j.gpus,
    }
    key = keys.get(policy, keys["fifo"])
    return Count(
        gpus,
        jobs,
        lambda active: sorted(active, key=lambda j: (key(j), place[j.name])),
        preempt=not policy.startswith("fifo"),
        strict=policy == "fifo",
        limits=() if policy in keys else LIMITS,
        by_time=policy == LAS_TIME,
    ).play()


@pytest.mark.data
@pytest.mark.parametrize(
    ("policy", "seconds", "preemptions"),
    [
        ("fifo", 991_167, 0),
        ("fifo:backfill=true", 480_105, 0),
        ("srtf", 180_116, None),
        ("srsf", 172_684, None),
        (LAS_TIME, 276_830, 1_362),
        (LAS_2D, 327_260, None),
    ],
)
def test_the_muri_trace_on_64_gpus_gives_the_known_completion_times(
    data: Callable[[str], Path], policy: str, seconds: int, preemptions: int | None
) -> None:
    trace = load(data("muri/traces/trace3.csv"))

    average, stopped = average_jct_s(trace, policy, "8x8:v100")

    assert average == pytest.approx(seconds, abs=0.5)
    assert preemptions is None or stopped == preemptions


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "fifo:backfill=true", "srtf", "srsf", LAS_TIME, LAS_2D])
def test_trace1_on_128_gpus_agrees_with_a_naive_simulator(
    data: Callable[[str], Path], policy: str
) -> None:
    trace = load(data("muri/traces/trace1.csv"))

    average, stopped = average_jct_s(trace, policy, "16x8:v100")

    expected = naive(trace, policy, 128)
    assert average == pytest.approx(expected.mean_jct, rel=1e-9)
    assert stopped == expected.preemptions


@pytest.mark.parametrize("policy", ["fifo", "fifo:backfill=true", "srtf", "srsf", LAS_TIME, LAS_2D])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_drawn_workload_agrees_with_a_naive_simulator(policy: str, seed: int) -> None:
    from weft.app.simulate.run import prepare
    from weft.app.simulate.setup import Setup

    trace, _ = prepare(Setup("philly", policy, "4x4:v100", seed, jobs=150, load=1.2))

    average, stopped = average_jct_s(trace, policy, "4x4:v100")

    expected = naive(trace, policy, 16)
    assert average == pytest.approx(expected.mean_jct, rel=1e-9)
    assert stopped == expected.preemptions
