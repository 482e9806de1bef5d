"""Errors of the state machine carry what happened to the job before."""

from __future__ import annotations

import pickle

import pytest

from weft.core.errors import StateError
from weft.core.events.event import Decided, Finished, Started, Submitted, Woken
from weft.core.events.recent_events import REMEMBERED, TOLD, RecentEvents
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.state.state import State

A, B = JobId("a"), JobId("b")


def state_with(*jobs: JobId) -> State:
    state = State(parse_cluster("1x4:a100"))
    for at, job in enumerate(jobs):
        state.fold(float(at), Submitted(Job(job, demand=Demand(2))))
    return state


def test_a_job_that_is_submitted_twice_tells_its_story() -> None:
    state = state_with(A, B)
    on = Allocation((Slice(state.cluster.nodes[0].id, (0, 1)),))
    state.fold(2.0, Decided(1, {A: on}))
    state.fold(3.0, Started(A, 1))

    with pytest.raises(StateError) as raised:
        state.fold(4.0, Submitted(Job(A)))

    lines = raised.value.what.splitlines()
    assert lines[0] == "Submitted at 4.000 cannot be: job 'a' was submitted twice"
    assert lines[1] == "history of job 'a':"
    assert [line.split()[1] for line in lines[2:]] == [
        "Submitted",
        "Decided",
        "Started(job='a',",
        "Submitted",
    ]
    assert "holds a100-0:0,1" in lines[3]
    assert "'b'" not in raised.value.what


def test_a_decision_on_a_job_that_left_names_it() -> None:
    state = state_with(A, B)
    on = Allocation((Slice(NodeId("a100-0"), (0, 1)),))
    state.fold(2.0, Decided(1, {A: on}))
    state.fold(3.0, Started(A, 1))
    state.fold(4.0, Finished(A, 1))

    with pytest.raises(StateError, match="there is no 'a'") as raised:
        state.fold(5.0, Decided(2, {A: None}))

    assert "history of job 'a'" in raised.value.what
    assert "Finished(job='a', attempt=1)" in raised.value.what


def test_only_the_last_events_are_told_and_few_are_kept() -> None:
    history = RecentEvents()
    for at in range(3 * REMEMBERED):
        history.events.append((float(at), Started(A, at)))

    assert len(history.lines_of_job(A)) == TOLD
    assert history.lines_of_job(A)[-1].startswith(f"{3 * REMEMBERED - 1:.3f}")
    assert history.lines_of_job(B) == []


def test_events_of_no_job_have_no_story() -> None:
    assert "history" not in RecentEvents().error(1.0, Woken(), ValueError("odd")).what


def test_a_snapshot_does_not_carry_it() -> None:
    history = RecentEvents()
    history.events.append((1.0, Started(A, 1)))

    assert pickle.loads(pickle.dumps(history)).lines_of_job(A) == []
