"""What people read of a job that waits for memory."""

from __future__ import annotations

from weft.core.knowledge.measured import MemoryWait
from weft.core.model.job import JobId
from weft.service.jobs.memory_words import describe_wait


def test_the_largest_holders_are_named() -> None:
    held = {"me": 1.0, "big": 70.2, "spike": 45.0, "a": 2.0, "b": 1.0}
    wait = MemoryWait(70.0, 100.0, held)

    assert describe_wait(wait, JobId("me"), 112.0) == (
        "waits for 70 GB of GPU memory for 12 s: "
        "big holds 70.2 GB, spike holds 45 GB, a holds 2 GB and 1 more"
    )


def test_jobs_that_end_before_enough_is_free_tell_when_it_is() -> None:
    wait = MemoryWait(70.0, 100.0, {"me": 1.0, "big": 70.0, "spike": 45.0}, missing_gb=80.0)

    known = describe_wait(wait, JobId("me"), 112.0, {"big": 8.4, "spike": 3.0})
    unknown = describe_wait(wait, JobId("me"), 112.0, {"big": 8.4})

    assert known.endswith("big holds 70 GB, spike holds 45 GB; likely free in 8 s")
    assert "likely" not in unknown


def test_a_job_that_waits_on_two_gpus_waits_for_the_later_one() -> None:
    second = MemoryWait(10.0, 105.0, {"late": 60.0}, missing_gb=5.0)
    wait = MemoryWait(70.0, 100.0, {"soon": 70.0}, missing_gb=60.0, others=(second,))

    both = describe_wait(wait, JobId("me"), 112.0, {"soon": 8.0, "late": 50.0})
    unknown = describe_wait(wait, JobId("me"), 112.0, {"soon": 8.0})

    assert both.endswith("likely free in 50 s")
    assert "likely" not in unknown


def test_a_job_that_gave_way_says_so() -> None:
    text = describe_wait(MemoryWait(70.0, 100.0, {}, away=True), JobId("me"), 90.0)

    assert text == (
        "waits for 70 GB of GPU memory for 0 s; "
        "its own memory is in host memory meanwhile, for the others"
    )
