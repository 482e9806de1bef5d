"""Where jobs stand: one at a time or all at once, the words are the same."""

from __future__ import annotations

from collections import Counter

from weft.core.events import event as facts
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.state.state import State
from weft.runtime.records.ledger import Ledger
from weft.runtime.records.status import count_words, status_of, words_but_pending

N = NodeId("n")
A, B, C, D, E, F, G = map(JobId, "abcdefg")
H = JobId("h")


def on(gpu: int) -> Allocation:
    return Allocation((Slice(N, (gpu,)),))


STORY: tuple[facts.Event, ...] = (
    *(facts.Submitted(Job(job)) for job in (A, B, C, D, E, F, G, H)),
    facts.Decided(1, {A: on(0), B: on(1), C: on(2), D: on(3), E: on(4), F: on(5)}),
    *(facts.Started(job, 1) for job in (A, B, C, D, F)),
    facts.Decided(2, {B: None, C: None}),
    facts.Stopped(B, 1),
    facts.Failed(D, 1, "its own fault", retry=True),
    facts.Finished(F, 1),
    facts.Suspended(H),
)


def test_every_state_has_its_word_alone_and_together() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    for at, event in enumerate(STORY):
        state.fold(float(at), event)
        ledger.fold(float(at), event)

    together = words_but_pending(ledger.jobs, state)

    assert together == {
        A: "running",
        B: "preempted",
        C: "checkpointing",
        E: "starting",
        H: "suspended",
    }
    alone = {job: status_of(record, state).state for job, record in ledger.jobs.items()}
    assert alone == {**together, D: "pending", G: "pending", F: "succeeded"}
    assert count_words(ledger.jobs, together) == Counter(
        word for word in alone.values() if word != "succeeded"
    )
    assert count_words(ledger.jobs, together, "nobody") == {}


def test_who_is_resumed_before_its_first_run_is_pending_again() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    story: list[facts.Event] = [facts.Submitted(Job(A)), facts.Suspended(A), facts.Resumed(A)]
    for at, event in enumerate(story):
        state.fold(float(at), event)
        ledger.fold(float(at), event)

    assert words_but_pending(ledger.jobs, state) == {}
    assert ledger.jobs.touched == {}
    assert count_words(ledger.jobs, {}) == {"pending": 1}


def test_who_has_left_is_not_among_the_active() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    story: tuple[facts.Event, ...] = (facts.Submitted(Job(A)), facts.Cancelled(A))
    for at, event in enumerate(story):
        state.fold(float(at), event)
        ledger.fold(float(at), event)

    assert count_words(ledger.jobs, words_but_pending(ledger.jobs, state)) == {}
    assert status_of(ledger.jobs[A], state).state == "cancelled"


def test_a_job_that_is_being_written_down_is_counted_by_nobody_yet() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    for at, job in enumerate((A, B)):
        state.fold(float(at), facts.Submitted(Job(job)))
    ledger.fold(0.0, facts.Submitted(Job(A)))

    assert count_words(ledger.jobs, words_but_pending(ledger.jobs, state)) == {"pending": 1}


def test_a_job_whose_end_is_being_written_down_is_as_it_was() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    for at, event in enumerate(STORY):
        state.fold(float(at), event)
        ledger.fold(float(at), event)
    state.fold(99.0, facts.Finished(A, 1))
    state.fold(99.0, facts.Cancelled(G))

    assert status_of(ledger.jobs[A], state).state == "running"
    assert status_of(ledger.jobs[G], state).state == "pending"
    assert words_but_pending(ledger.jobs, state)[A] == "running"
