"""Who held which devices when, as a fold of events."""

from __future__ import annotations

from weft.core.events import event as facts
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.stops import Rung
from weft.service.streams.timeline import Timeline, longest

A, B = JobId("a"), JobId("b")


def on(*gpus: int) -> Allocation:
    return Allocation((Slice(NodeId("n"), gpus),))


def folded(*events: tuple[float, facts.Event]) -> Timeline:
    timeline = Timeline()
    for seq, (at, event) in enumerate(events, start=1):
        timeline.fold(seq, at, event)
    return timeline


def test_a_span_reaches_from_the_start_to_the_end_of_an_attempt() -> None:
    timeline = folded(
        (0.0, facts.Submitted(Job(A, tenant="t"))),
        (1.0, facts.Decided(1, {A: on(0, 1)})),
        (2.0, facts.Started(A, 1)),
        (5.0, facts.Decided(2, {A: None})),
        (6.0, facts.Stopped(A, 1)),
        (7.0, facts.Decided(3, {A: on(2)})),
        (8.0, facts.Started(A, 2)),
    )

    first, second = timeline.spans

    assert (first.start, first.end, first.how) == (2.0, 6.0, "preempted")
    assert first.on == (("n", (0, 1)),)
    assert (second.start, second.end, second.attempt) == (8.0, None, 2)


def test_work_since_the_last_checkpoint_is_lost_and_only_that() -> None:
    timeline = folded(
        (1.0, facts.Decided(1, {A: on(0, 1), B: on(2)})),
        (2.0, facts.Started(A, 1)),
        (2.0, facts.Started(B, 1)),
        (5.0, facts.Saved(A, 1, 10)),
        (8.0, facts.Failed(A, 1, "oom", retry=True)),
        (9.0, facts.Failed(B, 1, "oom", retry=True)),
    )

    lost = {span.job: span.lost_gpu_s for span in timeline.spans}

    assert lost == {A: 6.0, B: None}  # two GPUs for three seconds; b never wrote one


def test_a_live_resize_ends_one_span_and_begins_another() -> None:
    timeline = folded(
        (1.0, facts.Decided(1, {A: on(0)})),
        (2.0, facts.Started(A, 1)),
        (3.0, facts.Decided(2, {A: on(0, 1)}, live=(A,))),
        (4.0, facts.Resized(A, 1, 1)),
        (9.0, facts.Finished(A, 1)),
    )

    assert [(span.start, span.end, span.how) for span in timeline.spans] == [
        (2.0, 4.0, "resized"),
        (4.0, 9.0, "finished"),
    ]
    assert timeline.spans[1].on == (("n", (0, 1)),)


def test_a_job_holds_nothing_while_it_sleeps_and_loses_no_work() -> None:
    timeline = folded(
        (1.0, facts.Decided(1, {A: on(0)})),
        (2.0, facts.Started(A, 1)),
        (3.0, facts.Saved(A, 1, 10)),
        (5.0, facts.Decided(2, {A: None, B: on(0)})),
        (6.0, facts.Slept(A, 1, Rung.FREEZE)),
        (8.0, facts.Decided(3, {A: on(1)})),
        (9.0, facts.Awoke(A, 1)),
    )

    first, second = timeline.spans

    assert (first.start, first.end, first.how, first.lost_gpu_s) == (2.0, 6.0, "preempted", None)
    assert (second.start, second.end, second.on) == (9.0, None, (("n", (1,)),))


def test_decisions_say_what_they_changed() -> None:
    timeline = folded(
        (1.0, facts.Decided(1, {A: on(0)})),
        (2.0, facts.Decided(2, {}, reasons={B: "waits"})),
        (3.0, facts.Decided(3, {A: on(0, 1), B: on(2)}, reasons={A: "grows"})),
    )

    assert [decision.number for decision in timeline.decisions] == [1, 3]
    assert [(m.before, m.after, m.why) for m in timeline.decisions[1].moves] == [
        (1.0, 2.0, "grows"),
        (0.0, 1.0, ""),
    ]


def test_a_window_holds_what_reaches_into_it_and_news_what_changed_after() -> None:
    timeline = folded(
        (1.0, facts.Decided(1, {A: on(0), B: on(1)})),
        (2.0, facts.Started(A, 1)),
        (3.0, facts.Started(B, 1)),
        (4.0, facts.Cancelled(A)),
        (5.0, facts.Stopped(A, 1)),
    )

    assert [span.job for span in timeline.between(6.0, 9.0, 0)] == [B]
    assert [span.job for span in timeline.between(0.0, 2.5, 0)] == [A]
    assert [(span.job, span.how) for span in timeline.between(0.0, 9.0, 4)] == [(A, "cancelled")]
    assert [span.job for span in longest(timeline.spans, 1, 9.0)] == [B]
