"""The log's past under other policies."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from weft.app.insight.history import LogHistory, read_history
from weft.app.insight.never_starts import StuckJobs
from weft.app.insight.what_if import (
    Variant,
    WhatIfChanges,
    more_jobs,
    resized,
    trace_of,
    what_if,
    what_if_in_file,
)
from weft.app.serve.rules import Quotas
from weft.core.codec.event_lines import event_line
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.events.event import (
    Decided,
    Event,
    Finished,
    NodeUp,
    Reported,
    Started,
    Stopped,
    Submitted,
)
from weft.core.events.report import Report
from weft.core.model.cluster import Node, parse_cluster
from weft.core.model.job import (
    Allocation,
    BatchRange,
    Demand,
    Job,
    JobId,
    LinearQuantity,
    NodeId,
    Slice,
)
from weft.core.spec.part_spec import PartSpec
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.ledger import CANCELLED, SUCCEEDED

CLUSTER = parse_cluster("1x4:a100")
POLICIES = {"fifo": Variant("fifo", CLUSTER), "srtf": Variant("priority|firm|srtf", CLUSTER)}


def record(
    name: str, submitted: float, gpus: int, worked: float, outcome: str = SUCCEEDED
) -> JobRecord:
    job = Job(JobId(name), submitted, Demand(gpus))
    return JobRecord(
        job, submitted, outcome, started=submitted, starts=1, gpu_s=LinearQuantity(worked * gpus)
    )


def test_short_jobs_behind_a_long_one_gain_by_srtf() -> None:
    past = [record("long", 0.0, 4, 10_000.0), record("short", 10.0, 4, 10.0)]

    answer = what_if(past, POLICIES, 20_000.0)

    assert answer.jobs == 2
    fifo, srtf = answer.policies["fifo"], answer.policies["srtf"]
    assert fifo["avg_jct_h"] == pytest.approx((10_000 + 10_000) / 2 / 3600, rel=0.01)
    assert srtf["avg_jct_h"] < 0.6 * fifo["avg_jct_h"]
    assert srtf["avg_queue_h"] < fifo["avg_queue_h"]


def test_lengths_are_the_work_that_was_done_and_guesses_are_counted() -> None:
    past = [record("a", 0.0, 2, 100.0), record("b", 5.0, 2, 30.0, outcome="")]

    trace, guessed = trace_of(past, 1000.0, hours=None, guess_s=600.0)

    assert [truth.length for _, truth in trace] == [100.0, 100.0]
    assert guessed == {"b"}


def test_what_restarts_took_is_no_work_and_a_replay_adds_it_again() -> None:
    """A job of 1,000 s that was stopped twice took 30 s more each time."""
    stopped = replace(record("a", 0.0, 2, 1_060.0), starts=3)

    trace, _ = trace_of([stopped], 2_000.0, hours=None, guess_s=600.0)

    ((_, truth),) = trace
    assert truth.length == pytest.approx(1_000.0)


def test_only_the_hours_that_were_asked_for() -> None:
    past = [record("old", 0.0, 1, 10.0), record("new", 7000.0, 1, 10.0)]

    trace, _ = trace_of(past, 7200.0, hours=1.0, guess_s=600.0)

    assert [job.id for job, _ in trace] == ["new"]


def test_an_empty_past_is_said_to_be_empty() -> None:
    never = JobRecord(Job(JobId("x")), 0.0, CANCELLED)
    with pytest.raises(InvalidConfig, match="no jobs to replay"):
        what_if([never], POLICIES, 10.0)


def test_jobs_too_large_for_what_is_up_now_never_start() -> None:
    past = [record("big", 0.0, 8, 10.0), record("small", 1.0, 1, 10.0)]

    answer = what_if(past, POLICIES, 100.0)

    because = "asks for 8 GPUs, more than there are"
    assert answer.never["fifo"] == [StuckJobs(1, because, (JobId("big"),))]
    assert answer.policies["fifo"]["avg_jct_h"] == pytest.approx(10.0 / 3600)
    nothing = what_if(past[:1], POLICIES, 100.0)
    assert nothing.policies == {"fifo": {}, "srtf": {}}


def test_jobs_over_a_new_limit_never_start_and_that_is_no_error() -> None:
    past = [record(f"job{i}", float(i), 2 + i % 2, 10.0) for i in range(6)]
    past = [replace(run, job=replace(run.job, tenant="vision")) for run in past]
    limited = Variant("quota:limits=vision=2|fifo", CLUSTER)

    answer = what_if(past, {**POLICIES, "limited": limited}, 100.0)

    (never,) = answer.never["limited"]
    assert never.count == 3
    assert "more than the 2 GPUs" in never.because
    assert "averages are over jobs that end" in answer.note


NODE = Node(NodeId("n"), "a100", 8)


def on(*gpus: int) -> Allocation:
    return Allocation((Slice(NODE.id, gpus),))


def flat() -> LogHistory:
    """A job that reports the same speed on 1 and on 4 GPUs, after 100 s on each."""
    job = Job(JobId("flat"), demand=Demand(1, 1, 4), batch=BatchRange(32, 32, 32))
    per_gpu = {1: 32.0, 4: 8.0}
    events: list[tuple[float, Event]] = [(0.0, NodeUp(NODE)), (0.0, Submitted(job))]
    for attempt, gpus in ((1, 1), (2, 4)):
        at = 100.0 * (attempt - 1)
        report = Report(
            step_s=1.0,
            grad_s=1.0,
            last_s=1.0,
            per_gpu=per_gpu[gpus],
            batch=32.0,
            replicas=float(gpus),
            nodes=1.0,
        )
        events += [
            (at, Decided(attempt, {job.id: on(*range(gpus))})),
            (at, Started(job.id, attempt)),
            (at + 1.0, Reported(job.id, attempt, report)),
        ]
    events.append((200.0, Finished(job.id, 2)))
    return read_history((event_line(at, event) for at, event in events), "test")


def test_speeds_are_those_that_were_reported_and_not_by_the_number_of_gpus() -> None:
    history = flat()
    job = history.ledger.jobs[JobId("flat")].job

    speeds = history.speeds
    worked, four = speeds.worked(job, speeds.perf), speeds.perf.speed(job, "a100", 1, 4)

    assert four < 2.0  # in proportion it would be 4
    assert worked == pytest.approx(100.0 + 100.0 * four)  # and 500 s of work


def test_a_file_of_events_is_replayed_with_more_machines() -> None:
    past: list[tuple[float, Event]] = [
        (0.0, NodeUp(NODE)),
        *((0.0, Submitted(Job(JobId(f"j{i}"), 0.0, Demand(8)))) for i in range(4)),
    ]
    runs: list[tuple[float, Event]] = []
    for i in range(4):
        runs += [
            (100.0 * i, Decided(i + 1, {JobId(f"j{i}"): on(*range(8))})),
            (100.0 * i, Started(JobId(f"j{i}"), 1)),
            (100.0 * (i + 1), Finished(JobId(f"j{i}"), 1)),
        ]
    history = read_history((event_line(at, event) for at, event in (*past, *runs)), "test")

    answer = what_if_in_file(history, WhatIfChanges(nodes="1x8:a100"), "", "test")

    as_it_was, more = answer.policies["fifo"], answer.policies["fifo, 1x8:a100 more"]
    assert as_it_was["makespan_h"] == pytest.approx(2.0 * more["makespan_h"])


def test_a_log_of_a_simulation_asks_for_its_machines() -> None:
    with pytest.raises(InvalidConfig, match="what machines"):
        what_if_in_file(LogHistory(), WhatIfChanges(nodes="1x8:a100"), "", "log.jsonl")


def test_a_past_job_at_another_size_works_as_much_and_takes_as_long_as_that_needs() -> None:
    past = [record("a", 0.0, 1, 100.0)]
    changed = WhatIfChanges(sizes={"a": 2})

    answer = what_if(past, {"then": Variant("fifo", CLUSTER, changed)}, 1000.0)

    assert answer.policies["then"]["avg_jct_h"] == pytest.approx(50.0 / 3600.0)
    with pytest.raises(UnknownName):
        what_if(past, {"x": Variant("fifo", CLUSTER, WhatIfChanges(sizes={"b": 2}))}, 1000.0)


def test_quotas_and_weights_go_around_the_policy_that_a_person_named() -> None:
    rules = Quotas({"nlp": 2.0})
    change = WhatIfChanges(limits={"nlp": 8.0}, weights={"cv": 2.0})

    spec = change.wrap_policy(rules.wrap_policy(PartSpec("las")), rules)

    assert Quotas.of(spec) == Quotas({"nlp": 8.0}, {"cv": 2.0})
    assert change.label("las") == "las, limit nlp=8, weight cv=2"


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="0 GPUs"):
        resized(Job(JobId("a")), 0)


def test_what_is_too_dear_leaves_out_the_oldest_and_says_so() -> None:
    past = [record(f"job{i}", float(i), 1 + i % 2, 100.0) for i in range(60)]
    reported: list[tuple[str, float]] = []

    answer = what_if(
        past, POLICIES, 1000.0, cpu_s=0.0, progress=lambda *news: reported.append(news)
    )

    assert answer.jobs == 50
    assert len(answer.outcomes["fifo"].per_job.end_s) == len(answer.outcomes["srtf"].per_job.end_s)
    assert "10 older jobs are left out" in answer.note
    assert reported[-1] == ("srtf", 50 / 60)
    assert "left out" not in what_if(past, POLICIES, 1000.0).note


def test_the_note_holds_the_replay_against_what_happened() -> None:
    late = replace(record("short", 10.0, 4, 10.0), started=4010.0, starts=3, ended=4020.0)
    long = replace(record("long", 0.0, 4, 10_000.0), ended=10_000.0)

    note = what_if([long, late], POLICIES, 20_000.0).note

    assert "2 ended jobs waited 33.3 min in all on average and started again 1.00 times" in note
    assert "in the replay of the same 83" in note
    assert note.endswith(" min and 0.00")


def test_all_of_a_wait_is_held_against_the_replay_and_not_only_the_first() -> None:
    stopped, other = JobId("stopped"), JobId("other")
    events: list[tuple[float, Event]] = [
        (0.0, NodeUp(NODE)),
        (0.0, Submitted(Job(stopped, 0.0, Demand(8)))),
        (0.0, Submitted(Job(other, 0.0, Demand(8)))),
        (0.0, Decided(1, {stopped: on(*range(8))})),
        (0.0, Started(stopped, 1)),
        (600.0, Decided(2, {stopped: None, other: on(*range(8))})),
        (600.0, Stopped(stopped, 1)),
        (600.0, Started(other, 1)),
        (1800.0, Finished(other, 1)),
        (1800.0, Decided(3, {stopped: on(*range(8))})),
        (1800.0, Started(stopped, 2)),
        (2400.0, Finished(stopped, 2)),
    ]
    history = read_history((event_line(at, event) for at, event in events), "test")

    note = what_if_in_file(history, WhatIfChanges(), "", "test").note

    assert "2 ended jobs waited 15 min in all on average and started again 0.50 times" in note
    assert "in the replay of the same 9.75 min and 0.00" in note  # in order: none is stopped


def test_the_note_says_how_far_older_jobs_move_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    past = [record(f"job{i}", float(i), 4, 100.0) for i in range(60)]
    monkeypatch.setattr("weft.app.insight.what_if.WHOLE", 0.0)
    monkeypatch.setattr("weft.app.insight.what_if.more_jobs", lambda jobs, *_: min(jobs + 5, 55))

    note = what_if(past, POLICIES, 1000.0, cpu_s=1e6).note

    moved = re.search(r"5 older .* the newest 50 waited (\S+) min instead of (\S+) min", note)
    assert moved is not None
    assert float(moved[2]) - float(moved[1]) == pytest.approx(5 * 100.0 / 60.0, rel=0.2)


def test_more_jobs_are_tried_as_long_as_there_is_time() -> None:
    assert more_jobs(50, 10_000, took_s=1.0, left_s=19.0) == 150
    assert more_jobs(150, 10_000, took_s=5.0, left_s=15.0) == 225
    assert more_jobs(225, 10_000, took_s=12.0, left_s=8.0) == 225
    assert more_jobs(50, 60, took_s=1.0, left_s=19.0) == 60


def test_with_time_enough_nothing_is_left_out() -> None:
    past = [record(f"job{i}", float(i), 1 + i % 2, 100.0) for i in range(200)]

    answer = what_if(past, POLICIES, 1000.0, cpu_s=1e6)

    assert answer.jobs == 200
    assert answer.policies == what_if(past, POLICIES, 1000.0).policies
