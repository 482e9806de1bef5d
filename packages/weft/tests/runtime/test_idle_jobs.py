"""Jobs that hold GPUs and do not use them."""

from __future__ import annotations

from dataclasses import replace

from weft.core.events.report import Report
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.plan.reasons import device_word
from weft.runtime.records.idle_jobs import IdleJobs, describe_idle
from weft.runtime.records.job_records import JobRecord
from weft.service.responses.job_row import measurements_of

A = JobId("a")
ON = Allocation((Slice(NodeId("n"), (0, 1, 2, 3)),))


def record(**report: float) -> JobRecord:
    job = Job(A, tenant="vision")
    return JobRecord(job, 0.0, allocation=ON, attempt=1, report=Report(**report))  # type: ignore[arg-type]


def look_for(idle: IdleJobs, minutes: range, job: JobRecord) -> list[int]:
    """At which minutes it is found idle."""
    return [minute for minute in minutes if idle.find_idle([job], 60.0 * minute)]


def test_a_job_whose_gpus_do_nothing_is_found_once_and_costs_gpu_hours() -> None:
    idle = IdleJobs()

    assert look_for(idle, range(31), record(sm=0.01)) == [10]

    use = idle.idle[A]
    assert describe_idle(use) == "holds 4 GPUs and has not used them for 30 min: 2.0 GPU-hours"
    assert idle.wasted_gpu_s == {"vision": 4 * 30 * 60.0}


def test_a_job_without_a_step_for_long_is_found_where_nobody_sees_its_gpus() -> None:
    idle = IdleJobs()

    assert look_for(idle, range(12), record(steps=7.0)) == [10]

    assert not idle.find_idle([record(steps=8.0)], 60.0 * 12)
    assert not idle.idle  # it goes on


def test_who_is_busy_or_says_nothing_of_itself_is_left_alone() -> None:
    for job in (record(sm=0.6, steps=7.0), record(), replace(record(sm=0.0), allocation=None)):
        idle = IdleJobs()
        assert look_for(idle, range(60), job) == []
        assert not idle.wasted_gpu_s


def test_a_job_that_stands_still_has_no_speed_and_one_of_long_steps_has() -> None:
    idle, quick, slow = IdleJobs(), record(steps=7.0, step_s=0.1), record(steps=7.0, step_s=60.0)
    idle.find_idle([quick], 0.0)
    assert not idle.stands_still(quick)

    idle.find_idle([quick], 90.0)

    assert idle.stands_still(quick)
    assert not idle.stands_still(slow)  # its next step may yet come
    assert not idle.stands_still(replace(quick, attempt=2))
    measured = measurements_of(quick.report, still=True)
    assert measured is not None
    assert measured.steps == 7.0
    assert measured.steps_per_s is None


def test_where_there_are_no_gpus_slots_are_named() -> None:
    idle = IdleJobs()
    look_for(idle, range(31), record(sm=0.01))

    text = describe_idle(idle.idle[A], device_word(["cpu", "cpu"]))

    assert text == "holds 4 CPU slots and has not used them for 30 min: 2.0 slot-hours"
    assert device_word(["cpu", "a100"]) == device_word([]) == "GPU"
