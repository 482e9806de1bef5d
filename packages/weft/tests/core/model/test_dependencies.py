"""Jobs that wait for others, in a scheduler without clock or engine."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.codec.event_lines import event_line, read_event
from weft.core.events import event as facts
from weft.core.events.actions import Reject, Start
from weft.core.model.cluster import parse_cluster
from weft.core.model.dependencies import Dependencies
from weft.core.model.job import AT_ONCE, After, Job, JobId
from weft.core.plan.kept_back import find_kept_back
from weft.core.scheduler import Scheduler
from weft.core.state.saved_state import load_state, save_state
from weft.core.state.state import State
from weft.core.state.table import JobTable
from weft.policies.fifo import Fifo
from weft.stack.layers import EligibleJobs

A, B, C = JobId("a"), JobId("b"), JobId("c")


class World:
    """A scheduler on four devices, with its log."""

    def __init__(self) -> None:
        self.log: list[facts.Event] = []
        self.now = 0.0
        self.scheduler = Scheduler(
            EligibleJobs(Fifo()),
            parse_cluster("1x4:v100"),
            journal=lambda _, event: self.log.append(event),
        )

    def tell(self, *events: facts.Event) -> list[str]:
        """What is started and rejected then."""
        self.now += 1.0
        actions = self.scheduler.step(self.now, events)
        return [
            action.job.id if isinstance(action, Start) else f"not {action.job}"
            for action in actions
            if isinstance(action, (Start, Reject))
        ]

    def submit(self, job: JobId, after: After | None = None) -> list[str]:
        return self.tell(facts.Submitted(Job(job, after=after or After())))


def test_jobs_that_wait_for_the_same_are_looked_at_together() -> None:
    """A thousand jobs after a thousand others cost a million looks at each decision."""
    looks = 0

    class CountedTable(JobTable):
        def __contains__(self, job: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(job)

    first = [Job(JobId(f"a{n}")) for n in range(100)]
    after = After(ok=tuple(job.id for job in first))
    state = State(parse_cluster("1x4:v100"))
    state.table = CountedTable()
    for job in (*first, *(Job(JobId(f"b{n}"), after=after) for n in range(100))):
        state.fold(0.0, facts.Submitted(job))
    looks_to_come = looks

    for _ in range(10):
        assert find_kept_back(state.table).sum() == 100

    assert looks_to_come < 500
    assert looks - looks_to_come == 10 * 100


@given(st.data())
def test_who_waits_is_who_waits_for_one_that_is_there(data: st.DataObject) -> None:
    state, jobs = State(parse_cluster("1x4:v100")), list[Job]()
    afters = [AT_ONCE]
    for number in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()) and jobs:
            gone = data.draw(st.sampled_from(jobs)).id
            state.fold(float(number), facts.Cancelled(gone))
            state = pickle.loads(pickle.dumps(state)) if data.draw(st.booleans()) else state
        else:
            ids = data.draw(st.lists(st.sampled_from(jobs or [Job(JobId("-"))]), max_size=3))
            afters.append(After(any=tuple(job.id for job in ids if job in jobs)))
            after = afters[data.draw(st.integers(0, len(afters) - 1))]
            jobs.append(Job(JobId(f"j{number}"), after=after))
            state.fold(float(number), facts.Submitted(jobs[-1]))
        table = state.table

        kept_back = find_kept_back(table)

        waits = [any(other in table for other in job.after.jobs) for job in table.jobs]
        assert kept_back.tolist() == waits


ENDS: list[facts.Event] = [facts.Finished(A, 1), facts.Failed(A, 1), facts.Cancelled(A)]


@pytest.mark.parametrize(
    ("after", "starts"),
    [
        (After(ok=(A,)), [True, False, False]),
        (After(any=(A,)), [True, True, True]),
        (After(not_ok=(A,)), [False, True, True]),
    ],
)
def test_a_job_waits_and_then_starts_or_is_cancelled(after: After, starts: list[bool]) -> None:
    for end, starts_then in zip(ENDS, starts, strict=True):
        world = World()
        assert world.submit(A) == ["a"]
        world.tell(facts.Started(A, 1))
        assert world.submit(B, after) == []

        actions = world.tell(end) + world.tell(facts.Stopped(A, 1))

        assert actions == (["b"] if starts_then else ["not b"])
        gone = [
            event for event in world.log if isinstance(event, facts.Cancelled) and event.job == B
        ]
        assert bool(gone) is not starts_then
        assert all("a" in event.reason for event in gone)


def test_those_that_wait_for_a_job_that_waits_in_vain_go_with_it() -> None:
    world = World()
    world.submit(A)
    world.submit(B, After(ok=(A,)))
    world.submit(C, After(ok=(B,)))

    assert world.tell(facts.Failed(A, 1)) == ["not b", "not c"]
    assert not len(world.scheduler.state.table)


def test_a_failure_that_is_tried_again_is_no_end() -> None:
    world = World()
    world.submit(A)
    world.submit(B, After(not_ok=(A,)))

    assert world.tell(facts.Failed(A, 1, retry=True)) == ["a"]


def test_a_job_that_comes_with_the_bad_end_of_the_other_is_cancelled() -> None:
    world = World()
    world.submit(A)

    actions = world.tell(facts.Failed(A, 1), facts.Submitted(Job(B, after=After(ok=(A,)))))

    assert actions == ["not b"]


def test_the_log_brings_back_who_waits_and_who_was_cancelled() -> None:
    world = World()
    world.submit(A)
    world.submit(B, After(ok=(A,)))
    world.submit(C, After(any=(A,)))
    again = World()
    lines = [event_line(1.0, event) for event in world.log]

    for at, event in map(read_event, lines):
        again.scheduler.apply_event(at, event)

    again.now = 10.0
    assert again.tell(facts.Failed(A, 1)) == ["not b", "c"]


def test_a_snapshot_brings_back_who_waits() -> None:
    world = World()
    world.submit(A)
    world.submit(B, After(ok=(A,)))
    table = world.scheduler.state.table
    jobs = {job.id: job for job in table.jobs}

    world.scheduler.state = load_state(save_state(world.scheduler.state), jobs)

    assert world.tell(facts.Failed(A, 1)) == ["not b"]


def test_no_decision_names_a_job_that_waits_for_another() -> None:
    world = World()
    world.submit(A)
    world.submit(B, After(ok=(A,)))

    decided = [event for event in world.log if isinstance(event, facts.Decided)]

    assert all(B not in decision.changes for decision in decided)


def test_a_job_starts_once_the_cancelled_one_before_it_has_left() -> None:
    world = World()
    world.submit(A)
    world.tell(facts.Started(A, 1))
    world.submit(C)
    world.submit(B, After(any=(A, C)))
    world.tell(facts.Finished(C, 1))

    assert world.tell(facts.Cancelled(A)) == []
    assert world.tell(facts.Stopped(A, 1)) == ["b"]


def test_so_many_jobs_of_an_app_run_at_once_as_it_says() -> None:
    world = World()
    jobs = [Job(JobId(f"j{n}"), app="sweep", max_parallel=2) for n in range(4)]

    assert world.tell(*map(facts.Submitted, jobs)) == ["j0", "j1"]
    assert world.submit(A) == ["a"]
    assert world.tell(facts.Finished(JobId("j1"), 1)) == ["j2"]
    assert world.tell(facts.Cancelled(JobId("j3"))) == []
    assert world.tell(facts.Finished(JobId("j0"), 1)) == []


def test_a_job_that_left_before_the_one_it_waited_for_is_not_withdrawn_again() -> None:
    known = Dependencies()
    known.add(Job(JobId("late"), after=After(ok=(JobId("first"),))), {JobId("first")}, {})

    known.remove_ended(JobId("late"), finished=False)
    known.remove_ended(JobId("first"), finished=False)

    assert known.in_vain == {}


def test_a_job_that_comes_to_those_that_wait_in_vain_goes_with_them() -> None:
    world = World()
    after = After(ok=(A,))
    world.submit(A)
    world.submit(B, after)
    world.tell(facts.Suspended(B, "me"))

    actions = world.tell(facts.Failed(A, 1), facts.Submitted(Job(C, after=after)))

    assert actions == ["not b", "not c"]
