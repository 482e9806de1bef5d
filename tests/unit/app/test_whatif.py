"""The log's past under other policies."""

from __future__ import annotations

import pytest

from weft.app.insight.what_if import trace_of, what_if
from weft.core.cluster import parse_cluster
from weft.core.errors import InvalidConfig
from weft.core.model import Demand, Job, JobId, Meter
from weft.runtime.ledger import CANCELLED, SUCCEEDED, JobRecord

CLUSTER = parse_cluster("1x4:a100")
POLICIES = {"fifo": "fifo", "srtf": "priority|firm|srtf"}


def record(
    name: str, submitted: float, gpus: int, worked: float, outcome: str = SUCCEEDED
) -> JobRecord:
    job = Job(JobId(name), submitted, Demand(gpus))
    return JobRecord(
        job, submitted, outcome, started=submitted, starts=1, gpu_s=Meter(worked * gpus)
    )


def test_short_jobs_behind_a_long_one_gain_by_srtf() -> None:
    past = [record("long", 0.0, 4, 10_000.0), record("short", 10.0, 4, 10.0)]

    found = what_if(past, CLUSTER, POLICIES, 20_000.0)

    assert found.jobs == 2
    fifo, srtf = found.policies["fifo"], found.policies["srtf"]
    assert fifo["avg_jct_h"] == pytest.approx((10_000 + 10_000) / 2 / 3600, rel=0.01)
    assert srtf["avg_jct_h"] < 0.6 * fifo["avg_jct_h"]
    assert srtf["avg_queue_h"] < fifo["avg_queue_h"]


def test_lengths_are_the_work_that_was_done_and_guesses_are_counted() -> None:
    past = [record("a", 0.0, 2, 100.0), record("b", 5.0, 2, 30.0, outcome="")]

    trace, guessed = trace_of(past, 1000.0, hours=None, guess_s=600.0)

    assert [truth.length for _, truth in trace] == [100.0, 100.0]
    assert guessed == 1


def test_only_the_hours_that_were_asked_for() -> None:
    past = [record("old", 0.0, 1, 10.0), record("new", 7000.0, 1, 10.0)]

    trace, _ = trace_of(past, 7200.0, hours=1.0, guess_s=600.0)

    assert [job.id for job, _ in trace] == ["new"]


def test_an_empty_past_is_said_to_be_empty() -> None:
    never = JobRecord(Job(JobId("x")), 0.0, CANCELLED)
    with pytest.raises(InvalidConfig, match="no jobs to replay"):
        what_if([never], CLUSTER, POLICIES, 10.0)


def test_jobs_too_large_for_what_is_up_now_are_left_out() -> None:
    past = [record("big", 0.0, 8, 10.0), record("small", 1.0, 1, 10.0)]

    assert what_if(past, CLUSTER, POLICIES, 100.0).jobs == 1
