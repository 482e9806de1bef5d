"""Step times by class of job (IISWC 2019), by the worked example."""

from __future__ import annotations

import pytest

from weft.core.errors import InvalidConfig
from weft.perf.training.step_classes import StepWork, faster_network, step_time

STEP = StepWork(input_gb=0.2, tflop=3.0, memory_gb=20.0, weights_gb=1.0)


def test_parameter_servers_spend_most_of_a_step_on_weights() -> None:
    took = step_time(STEP, "ps")

    assert took.input_s == pytest.approx(0.02857, abs=1e-5)
    assert took.compute_s == pytest.approx(0.41818, abs=1e-5)
    assert took.weights_s == pytest.approx(0.6)
    assert took.total_s == pytest.approx(1.04675, abs=1e-5)


def test_workers_that_reduce_on_one_node_share_its_bus_for_input() -> None:
    took = step_time(STEP, "allreduce-local", workers=8)

    assert took.input_s == pytest.approx(0.22857, abs=1e-5)
    assert took.weights_s == pytest.approx(0.02857, abs=1e-5)
    assert step_time(STEP, "ps").total_s / took.total_s == pytest.approx(1.55, abs=1e-3)
    with pytest.raises(InvalidConfig, match="9 workers"):
        step_time(STEP, "allreduce-local", workers=9)


def test_a_faster_network_helps_parameter_servers() -> None:
    fast = faster_network(100.0)

    assert step_time(STEP, "ps", fast).total_s == pytest.approx(0.70390, abs=1e-5)


def test_one_gpu_exchanges_nothing_and_a_reducing_cluster_uses_both_media() -> None:
    assert step_time(STEP, "1w1g").weights_s == 0.0
    assert step_time(STEP, "1wng", workers=2).weights_s == pytest.approx(1.0 / 7.0)
    both = step_time(STEP, "allreduce-cluster").weights_s
    assert both == pytest.approx(1.0 / (0.7 * 3.125) + 1.0 / 35.0)
