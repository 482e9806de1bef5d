"""What a suspended job pays to go on."""

from __future__ import annotations

from weft.core.model.job import Allocation, NodeId, Slice
from weft.sim.switches import Suspension


def on(node: str, *gpus: int) -> Allocation:
    return Allocation((Slice(NodeId(node), gpus),))


def test_the_first_job_on_a_device_pays_nothing_and_the_next_one_the_hand_over() -> None:
    suspension = Suspension(0.5)

    assert suspension.resume_cost_s(0, on("a", 0), 0.0) == 0.0
    assert suspension.resume_cost_s(1, on("a", 0), 0.0) == 0.5
    assert suspension.resume_cost_s(2, on("a", 1), 0.0) == 0.0


def test_going_on_at_home_is_cheap_and_elsewhere_it_is_a_restart() -> None:
    suspension = Suspension(0.5)
    suspension.resume_cost_s(0, on("a", 0), 0.0)

    assert suspension.resume_cost_s(0, on("a", 1), 30.0) == 0.5
    assert suspension.resume_cost_s(0, on("b", 1), 30.0) == 30.0


def test_a_job_that_died_has_nothing_in_memory() -> None:
    suspension = Suspension(0.5)
    suspension.resume_cost_s(0, on("a", 0), 0.0)

    suspension.forget_memory(0)

    assert suspension.resume_cost_s(0, on("a", 0), 30.0) == 30.0
