"""Where jobs stand: one at a time or all at once, the words are the same."""

from __future__ import annotations

from weft.core.events.event import (
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    Started,
    Stopped,
    Submitted,
    Suspended,
)
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.state.state import State
from weft.runtime.records.ledger import Ledger
from weft.runtime.records.status import active_words, status_of

N = NodeId("n")
A, B, C, D, E, F, G = map(JobId, "abcdefg")
H = JobId("h")


def on(gpu: int) -> Allocation:
    return Allocation((Slice(N, (gpu,)),))


STORY: tuple[Event, ...] = (
    *(Submitted(Job(job)) for job in (A, B, C, D, E, F, G, H)),
    Decided(1, {A: on(0), B: on(1), C: on(2), D: on(3), E: on(4), F: on(5)}),
    *(Started(job, 1) for job in (A, B, C, D, F)),
    Decided(2, {B: None, C: None}),
    Stopped(B, 1),
    Failed(D, 1, "its own fault", retry=True),
    Finished(F, 1),
    Suspended(H),
)


def test_every_state_has_its_word_alone_and_together() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    for at, event in enumerate(STORY):
        state.fold(float(at), event)
        ledger.fold(float(at), event)

    together = active_words(ledger.jobs, state)

    assert together == {
        A: "running",
        B: "preempted",
        C: "checkpointing",
        D: "pending",
        E: "starting",
        G: "pending",
        H: "suspended",
    }
    alone = {job: status_of(record, state).state for job, record in ledger.jobs.items()}
    assert alone == {**together, F: "succeeded"}


def test_who_has_left_is_not_among_the_active() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    story: tuple[Event, ...] = (Submitted(Job(A)), Cancelled(A))
    for at, event in enumerate(story):
        state.fold(float(at), event)
        ledger.fold(float(at), event)

    assert active_words(ledger.jobs, state) == {}
    assert status_of(ledger.jobs[A], state).state == "cancelled"


def test_a_job_that_is_being_written_down_is_counted_by_nobody_yet() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    for at, job in enumerate((A, B)):
        state.fold(float(at), Submitted(Job(job)))
    ledger.fold(0.0, Submitted(Job(A)))

    assert active_words(ledger.jobs, state) == {A: "pending"}


def test_a_job_whose_end_is_being_written_down_is_as_it_was() -> None:
    state, ledger = State(Cluster((Node(N, "a100", 8),))), Ledger()
    for at, event in enumerate(STORY):
        state.fold(float(at), event)
        ledger.fold(float(at), event)
    state.fold(99.0, Finished(A, 1))
    state.fold(99.0, Cancelled(G))

    assert status_of(ledger.jobs[A], state).state == "running"
    assert status_of(ledger.jobs[G], state).state == "pending"
