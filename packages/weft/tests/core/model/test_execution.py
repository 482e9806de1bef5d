"""Execution plans: how they are written, where they run, and what a change of one means."""

from __future__ import annotations

import pytest

from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig
from weft.core.model.execution import Execution, find_plan, read_execution
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice

PLAIN = Execution()


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("dp", PLAIN),
        ("dp4", Execution(4)),
        ("tp4-pp2", Execution(tensor=4, pipeline=2)),
        ("dp2-tp4-zero1-offload-ga8-gc", Execution(2, 4, 1, 1, True, 8, True)),
        ("zero3-gc", Execution(zero=3, checkpointing=True)),
    ],
)
def test_a_plan_is_read_as_it_is_written(text: str, plan: Execution) -> None:
    assert read_execution(text) == plan
    assert plan.text == text


@pytest.mark.parametrize(
    "text", ["", "tp", "dp0x", "gc2", "offload1", "zero4", "dp2-dp4", "tp0", "zero2-pp2", "magic"]
)
def test_what_no_framework_runs_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="plan"):
        read_execution(text)


def test_replicas_are_as_many_as_the_gpus_allow() -> None:
    divided = Execution(tensor=4, pipeline=2)

    assert divided.on(16) == Execution(2, 4, 2)
    assert divided.on(12) is None
    assert divided.on(4) is None
    assert Execution(2, 4, 2).on(32) is None


def test_a_batch_is_shared_evenly_or_not_at_all() -> None:
    assert Execution(4, accumulate=2).divides(32)
    assert not Execution(3).divides(32)
    assert not Execution(8, accumulate=8).divides(32)


def test_a_job_declares_plans_that_it_can_run() -> None:
    job = Job(JobId("a"), demand=Demand(8, 1, 16), plans=(PLAIN, Execution(tensor=4)))

    assert find_plan(job.plans, 8, Execution(2, 4))
    assert not find_plan(job.plans, 6, Execution(2, 3))
    assert decode(Job, encode(job)) == job


@pytest.mark.parametrize(
    ("demand", "plan", "message"),
    [
        (Demand(2), Execution(tensor=4), "a multiple of 4 GPUs"),
        (Demand(3, 3, 3), Execution(tensor=2), "a multiple of 2 GPUs"),
        (Demand(8), Execution(2, 8), "runs on 16 GPUs"),
    ],
)
def test_a_plan_that_never_fits_is_refused(demand: Demand, plan: Execution, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Job(JobId("a"), demand=demand, plans=(plan,))


def test_a_plan_is_declared_once() -> None:
    with pytest.raises(InvalidConfig, match="twice"):
        Job(JobId("a"), plans=(PLAIN, PLAIN))


def test_another_plan_on_the_same_devices_is_another_run() -> None:
    on = Allocation((Slice(NodeId("n"), (0, 1)),), plan=Execution(2))
    more = Allocation((Slice(NodeId("n"), (0, 1, 2, 3)),), plan=Execution(4))
    other = Allocation((Slice(NodeId("n"), (0, 1)),), plan=Execution(1, 2))

    assert on.stays(on)
    assert not on.stays(other)
    assert on.same_way(more)
    assert not on.same_way(other)
    assert decode(Allocation, encode(other)) == other
