"""What running jobs show of their batch sizes is what a search over them goes by."""

from __future__ import annotations

import json

import pytest

from weft.core.events.report import Report
from weft.core.model.job import BatchRange, Job, JobId
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of

JOB = Job(JobId("a"), batch=BatchRange(32, 64, 64))


def shown(*reports: Report) -> Colocated:
    believed = Colocated(profile_of)
    for report in reports:
        believed.observe(JOB, "h200", report)
    return believed


def test_a_job_is_tunable_once_it_trained_at_the_batch_it_was_submitted_with() -> None:
    before = shown(Report(batch=48.0, step_s=0.1, mem_gb=3.0))
    after = shown(Report(batch=32.0, step_s=0.1, mem_gb=4.0, noise=100.0))

    known = after.tunable(JOB)

    assert before.tunable(JOB) is None
    assert known is not None
    assert (known.init, known.noise) == (32, 100.0)
    assert known.mem_gb(32) == pytest.approx(4.0)
    assert known.mem_gb(64) == pytest.approx(7.0)


def test_memory_seen_at_a_larger_batch_replaces_what_was_supposed() -> None:
    batching = shown(
        Report(batch=32.0, step_s=0.1, mem_gb=4.0), Report(batch=48.0, step_s=0.2, mem_gb=4.5)
    ).tunable(JOB)

    assert batching is not None
    assert batching.mem_gb(64) == pytest.approx(5.0)


def test_progress_is_samples_by_what_they_are_worth_against_the_quickest_first_steps() -> None:
    alone = Report(batch=32.0, step_s=0.1, noise=96.0)
    beside = Report(batch=32.0, step_s=0.2, noise=96.0)
    larger = Report(batch=64.0, step_s=0.2, noise=96.0)

    assert shown(alone, beside).pace(JOB) == pytest.approx(0.5)
    assert shown(alone, beside, larger).pace(JOB) == pytest.approx(64 / 0.2 * 0.8 / (32 / 0.1))


def test_it_is_saved_and_loaded() -> None:
    believed, other = shown(Report(batch=32.0, step_s=0.1, mem_gb=4.0)), Colocated(profile_of)

    other.load(json.loads(json.dumps(believed.save())))

    assert other.tunable(JOB) == believed.tunable(JOB)
    assert other.pace(JOB) == believed.pace(JOB) == 1.0
