"""Failed jobs wait, twice as long each time; others do not."""

from __future__ import annotations

from weft.core.events.event import Decided, Event, Failed, Submitted, Woken
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.core.scheduler import Scheduler
from weft.policies.fifo import Fifo
from weft.stack.layers import LONGEST_S, Backoff

A, B = JobId("a"), JobId("b")


def scheduler(noted: list[Event]) -> Scheduler:
    return Scheduler(
        Backoff(Fifo()), parse_cluster("1x2:t4"), journal=lambda _, event: noted.append(event)
    )


def test_a_failed_job_is_started_again_when_its_pause_is_over() -> None:
    noted: list[Event] = []
    it = scheduler(noted)
    it.step(0.0, [Submitted(Job(A, launch=Launch(("x",), backoff_s=4.0)))])
    starts = []
    now = 10.0
    for attempt in (1, 2, 3):
        it.step(now, [Failed(A, attempt, retry=True)])
        wake = it.state.wake_at
        assert wake is not None
        starts.append(wake - now)
        it.step(wake, [Woken()])
        assert A in _last(noted).changes
        now = wake + 1.0

    assert starts == [4.0, 8.0, 16.0]


def test_the_pause_has_a_bound_and_others_go_on_meanwhile() -> None:
    noted: list[Event] = []
    it = scheduler(noted)
    it.step(0.0, [Submitted(Job(A, launch=Launch(("x",), backoff_s=1e6)))])
    it.step(1.0, [Failed(A, 1, retry=True)])

    it.step(2.0, [Submitted(Job(B))])

    assert set(_last(noted).changes) == {B}
    assert it.state.wake_at == 1.0 + LONGEST_S


def _last(noted: list[Event]) -> Decided:
    return next(event for event in reversed(noted) if isinstance(event, Decided))
