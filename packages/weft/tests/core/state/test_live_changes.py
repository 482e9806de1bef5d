"""Jobs that change their devices as they train: what is held, what waits, what follows."""

from __future__ import annotations

import pytest

from weft.core.events import event as facts
from weft.core.events.actions import Action, Resize, Start, Stop
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.state.saved_state import load_state, save_state
from weft.core.state.state import State
from weft.runtime.recovery.recover import wishes_of

A, B = JobId("a"), JobId("b")
NODE = NodeId("v100-0")


def on(*gpus: int) -> Allocation:
    return Allocation((Slice(NODE, gpus),))


class Story:
    """A state, and decisions whose live changes it picks itself."""

    def __init__(self) -> None:
        self.state = State(parse_cluster("1x4:v100"))
        self.now, self.decisions = 0.0, 0

    def fold(self, event: facts.Event) -> list[Action]:
        self.now += 1.0
        return self.state.fold(self.now, event)

    def decide(self, **changes: Allocation | None) -> list[Action]:
        self.decisions += 1
        wanted = {JobId(job): to for job, to in changes.items()}
        live = self.state.live.live_jobs(wanted, self.state.table)
        return self.fold(facts.Decided(self.decisions, wanted, live=live))

    def run(self, job: JobId, *gpus: int) -> None:
        self.fold(facts.Submitted(Job(job, 0.0, Demand(1, min=1, max=4))))
        self.decide(**{job: on(*gpus)})
        self.fold(facts.Started(job, 1))
        self.fold(facts.Resizable(job, 1, 0.5))

    def free(self) -> int:
        return self.state.free.on(0)


@pytest.fixture
def story() -> Story:
    return Story()


def resize(job: JobId, epoch: int, *gpus: int) -> tuple[str, JobId, int, tuple[int, ...]]:
    return ("resize", job, epoch, gpus)


def seen(actions: list[Action]) -> list[object]:
    """Actions in short."""
    changes: list[object] = []
    for action in actions:
        if isinstance(action, Resize):
            gpus = tuple(gpu for part in action.to.slices for gpu in part.gpus)
            changes.append(resize(action.job.id, action.epoch, *gpus))
        elif isinstance(action, Start):
            changes.append(("start", action.job.id, action.attempt))
        elif isinstance(action, Stop):
            changes.append(("stop", action.job, action.attempt))
    return changes


def test_a_job_that_trains_grows_without_a_stop_and_keeps_its_attempt(story: Story) -> None:
    story.run(A, 0)

    assert seen(story.decide(a=on(0, 1))) == [resize(A, 1, 0, 1)]
    assert seen(story.fold(facts.Resized(A, 1, 1, 0.1))) == []
    assert story.free() == 2
    assert seen(story.decide(a=None)) == [("stop", A, 1)]


def test_devices_that_a_job_moves_away_from_are_not_used_before_it_has_left(story: Story) -> None:
    story.run(A, 0, 1)
    story.fold(facts.Submitted(Job(B, 0.0, Demand(2))))

    assert seen(story.decide(a=on(2, 3), b=on(0, 1))) == [resize(A, 1, 2, 3)]
    assert seen(story.fold(facts.Resized(A, 1, 1, 0.1))) == [("start", B, 1)]


def test_two_jobs_that_swap_are_stopped_for_neither_could_begin(story: Story) -> None:
    story.run(A, 0, 1)
    story.run(B, 2, 3)

    assert seen(story.decide(a=on(2, 3), b=on(0, 1))) == [("stop", A, 1), ("stop", B, 1)]


def test_a_job_grows_onto_devices_that_another_gives_up_once_that_has_left(story: Story) -> None:
    story.run(A, 0)
    story.run(B, 1, 2)

    assert seen(story.decide(a=on(0, 2), b=on(1))) == [resize(B, 1, 1)]
    assert seen(story.fold(facts.Resized(B, 1, 1))) == [resize(A, 1, 0, 2)]


def test_a_change_that_failed_is_made_by_a_checkpoint(story: Story) -> None:
    story.run(A, 0)
    story.decide(a=on(1))

    assert seen(story.fold(facts.ResizeFailed(A, 1, 1, "a new rank died"))) == [("stop", A, 1)]
    assert seen(story.fold(facts.Stopped(A, 1))) == [("start", A, 2)]
    assert story.free() == 3


def test_of_two_changes_only_the_last_one_is_answered(story: Story) -> None:
    story.run(A, 0)
    story.decide(a=on(0, 1))
    story.fold(facts.Submitted(Job(B, 0.0, Demand(1))))

    assert seen(story.decide(a=on(0, 2), b=on(1))) == [resize(A, 2, 0, 2)]
    assert seen(story.fold(facts.Resized(A, 1, 1))) == []  # it may still be there
    assert seen(story.fold(facts.Resized(A, 1, 2))) == [("start", B, 1)]


def test_a_job_that_ends_in_the_middle_leaves_both_sets(story: Story) -> None:
    story.run(A, 0, 1)
    story.fold(facts.Submitted(Job(B, 0.0, Demand(2))))
    story.decide(a=on(2, 3), b=on(0, 1))

    assert seen(story.fold(facts.Finished(A, 1))) == [("start", B, 1)]
    assert story.free() == 2


def test_a_job_that_is_stopped_in_the_middle_leaves_both_sets(story: Story) -> None:
    story.run(A, 0)
    story.decide(a=on(1))
    story.fold(facts.Submitted(Job(B, 0.0, Demand(2))))

    assert seen(story.decide(a=None, b=on(0, 1))) == [("stop", A, 1)]
    assert seen(story.fold(facts.Stopped(A, 1))) == [("start", B, 1)]


def test_an_attempt_that_died_in_the_middle_is_started_anew(story: Story) -> None:
    story.run(A, 0)
    story.decide(a=on(1))
    story.fold(facts.Failed(A, 1, "a rank died", retry=True))

    assert seen(story.decide(a=on(1))) == [("start", A, 2)]
    assert not story.state.live.under_way


def test_both_sets_are_counted_while_both_are_held(story: Story) -> None:
    story.run(A, 0)
    table = story.state.table
    before = float(table.service(story.now)[0])
    story.decide(a=on(1, 2))
    began = float(table.service(story.now)[0])

    assert began - before == 1.0
    assert float(table.service(story.now + 10.0)[0]) - began == 30.0
    story.fold(facts.Resized(A, 1, 1))
    done = float(table.service(story.now)[0])
    assert float(table.service(story.now + 10.0)[0]) - done == 20.0


def test_what_is_under_way_survives_a_snapshot(story: Story) -> None:
    story.run(A, 0)
    story.run(B, 1, 2)
    story.decide(a=on(0, 2), b=on(1))

    jobs = {job.id: job for job in story.state.table.jobs}
    again = load_state(save_state(story.state), jobs)

    assert seen([*wishes_of(again)]) == [resize(B, 1, 1)]
    assert seen(again.fold(story.now, facts.Resized(B, 1, 1))) == [resize(A, 1, 0, 2)]
    assert again.live.is_resizable(A, 1)


def test_a_job_that_never_said_it_can_is_stopped(story: Story) -> None:
    story.fold(facts.Submitted(Job(A, 0.0, Demand(1))))
    story.decide(a=on(0))
    story.fold(facts.Started(A, 1))

    assert seen(story.decide(a=on(1))) == [("stop", A, 1)]
