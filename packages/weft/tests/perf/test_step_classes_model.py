"""Simulated jobs whose weights travel (IISWC 2019): how fast they are where."""

from __future__ import annotations

import pytest

import weft
from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.trace import Truth
from weft.perf.training.step_classes import StepClasses


def speed(perf: StepClasses, gpus: int, nodes: int = 1, **hints: float) -> float:
    job = Job(JobId("j"), demand=Demand(gpus), hints=hints)
    simulated = perf.simulate_job(job, Truth(100.0))
    each = gpus // nodes
    on = Allocation(tuple(Slice(NodeId(f"n{i}"), tuple(range(each))) for i in range(nodes)))
    simulated.begin(on, "v100")
    return simulated.pace(0.0, 0.0).rate


def test_a_job_with_parameter_servers_gains_on_one_node_and_by_a_faster_network() -> None:
    assert speed(StepClasses(), 8, nodes=2) == pytest.approx(1.0)
    assert speed(StepClasses(), 8) == pytest.approx(1.55, abs=1e-3)
    assert speed(StepClasses(ethernet_gbit=100.0), 8, nodes=8) == pytest.approx(1.487, abs=1e-3)
    assert speed(StepClasses(), 1) == pytest.approx(1.0)


def test_who_moves_much_input_loses_on_one_node() -> None:
    assert speed(StepClasses(), 8, input_gb=2.0) < 1.0


def test_reducing_among_nodes_goes_over_both_media() -> None:
    # 1 GB over 25 Gbit/s and NVLink instead of PCIe: 1.04675 / (0.44675 + 0.45714 + 0.02857).
    assert speed(StepClasses(allreduce=True), 16, nodes=2) == pytest.approx(1.1227, abs=1e-3)


def test_amounts_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="step-classes"):
        StepClasses(tflop=0.0)


def test_a_simulation_shows_what_consolidating_gains() -> None:
    spread, packed = (
        weft.compare(
            "philly",
            f"fifo:backfill=true,place={place}",
            "8x8:v100",
            jobs=40,
            perf="step-classes",
            processes=1,
        )
        for place in ("spread", "packed")
    )
    first = [
        next(iter(result.outcomes.values()))[0].metrics["makespan_h"] for result in (spread, packed)
    ]

    assert first[1] <= first[0]
