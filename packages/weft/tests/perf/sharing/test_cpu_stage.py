"""Jobs whose GPU waits for their host."""

from __future__ import annotations

import pytest

from weft.core.events.report import Report
from weft.core.model.job import Discipline, Job, JobId
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered, load_shipped_pairs, profile_of

WAITS = Report(step_s=0.12, data_s=0.06)


def job(name: str, model: str = "resnet50", **hints: float) -> Job:
    return Job(JobId(name), model=model, hints={"batch": 128.0, **hints})


def speeds(together: Colocated, *jobs: Job) -> list[float]:
    return list(together.speeds(jobs, "h200", Discipline.NONE))


def test_a_hint_and_a_report_of_the_same_wait_say_the_same() -> None:
    step_s = profile_of(job("bare")).step_s
    hinted, reported = (Colocated(profile_of, Unordered()) for _ in range(2))
    plain = job("plain", "bert-base")

    reported.observe(job("waits"), "h200", WAITS)

    by_hint = speeds(hinted, job("waits", cpu_s=step_s), plain)
    assert speeds(reported, job("waits"), plain) == pytest.approx(by_hint)
    assert reported.profile(job("waits")).gpu_use == pytest.approx(
        0.5 * profile_of(job("bare")).gpu_use
    )


def test_neighbours_that_stretch_a_step_do_not_hide_its_wait() -> None:
    together = Colocated(profile_of, Unordered())
    together.observe(job("waits"), "h200", WAITS)

    together.observe(job("waits"), "h200", Report(step_s=0.24, data_s=0.06))

    assert together.profile(job("waits")).cpu_part == pytest.approx(0.5)


def test_a_pair_that_ships_is_taken_only_for_jobs_that_do_not_wait() -> None:
    together = Colocated(profile_of, Unordered())
    bare, other = job("bare"), job("other", "bert-base", batch=32.0)
    measured = load_shipped_pairs("timeslicing").measured_speeds("resnet50:128", "bert-base:32")

    assert measured is not None
    assert speeds(together, bare, other) == list(measured)
    together.observe(bare, "h200", WAITS)
    with_wait = speeds(together, bare, other)

    assert all(now > before for now, before in zip(with_wait, measured, strict=True))


def test_what_came_with_a_job_was_measured_with_its_own_data() -> None:
    together = Colocated(profile_of, Unordered())
    hinted = job("told", gpu_util=40.0)

    together.observe(hinted, "h200", WAITS)

    assert together.profile(hinted).gpu_use == 0.4


def test_waits_are_saved_and_forgotten_with_the_job() -> None:
    together, other = Colocated(profile_of, Unordered()), Colocated(profile_of, Unordered())
    together.observe(job("waits"), "h200", WAITS)

    other.load(together.save())

    assert other.profile(job("waits")) == together.profile(job("waits"))
    other.forget(job("waits"))
    assert other.profile(job("waits")).cpu_part == 0.0


def test_one_stage_alone_says_nothing_of_the_gpu() -> None:
    assert profile_of(job("one", stage0_s=0.1)) == profile_of(job("bare"))
