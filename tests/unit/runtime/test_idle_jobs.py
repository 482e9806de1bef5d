"""Jobs that hold GPUs and do not use them."""

from __future__ import annotations

from dataclasses import replace

from weft.core.events.report import Report
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.runtime.records.idle_jobs import IdleJobs, describe_idle
from weft.runtime.records.job_records import JobRecord

A = JobId("a")
ON = Allocation((Slice(NodeId("n"), (0, 1, 2, 3)),))


def record(**report: float) -> JobRecord:
    job = Job(A, tenant="vision")
    return JobRecord(job, 0.0, allocation=ON, attempt=1, report=Report(**report))  # type: ignore[arg-type]


def look_for(idle: IdleJobs, minutes: range, one: JobRecord) -> list[int]:
    """At which minutes it is found idle."""
    return [minute for minute in minutes if idle.look([one], 60.0 * minute)]


def test_a_job_whose_gpus_do_nothing_is_found_once_and_costs_gpu_hours() -> None:
    idle = IdleJobs()

    assert look_for(idle, range(31), record(sm=0.01)) == [10]

    use = idle.idle[A]
    assert describe_idle(use) == "holds 4 GPUs and has not used them for 30 min: 2.0 GPU-hours"
    assert idle.wasted_gpu_s == {"vision": 4 * 30 * 60.0}


def test_a_job_without_a_step_for_long_is_found_where_nobody_sees_its_gpus() -> None:
    idle = IdleJobs()

    assert look_for(idle, range(12), record(steps=7.0)) == [10]

    assert not idle.look([record(steps=8.0)], 60.0 * 12)
    assert not idle.idle  # it goes on


def test_who_is_busy_or_says_nothing_of_itself_is_left_alone() -> None:
    for one in (record(sm=0.6, steps=7.0), record(), replace(record(sm=0.0), allocation=None)):
        idle = IdleJobs()
        assert look_for(idle, range(60), one) == []
        assert not idle.wasted_gpu_s
