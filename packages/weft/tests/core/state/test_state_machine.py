"""Facts in, wishes out: every transition of a job, by comparing the returned actions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.core.errors import WeftError
from weft.core.events import event as facts
from weft.core.events.actions import Action, Adjust, Reject, Start, Stop
from weft.core.events.report import Report
from weft.core.model import job as model
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.state.capacity import Capacity
from weft.core.state.cells import TableColumns
from weft.core.state.saved_state import load_state, save_state
from weft.core.state.state import State

A, B, C = model.JobId("a"), model.JobId("b"), model.JobId("c")
JOBS = {
    A: model.Job(A, demand=model.Demand(2)),
    B: model.Job(B, demand=model.Demand(2)),
    C: model.Job(C, demand=model.Demand(2)),
}
N0, N1 = model.NodeId("v100-0"), model.NodeId("v100-1")


def on(*gpus: int, node: model.NodeId = N0, share: float = 1.0) -> model.Allocation:
    return model.Allocation((model.Slice(node, gpus),), model.Sharing(share=share))


def two_nodes() -> model.Allocation:
    return model.Allocation((model.Slice(N0, (3,)), model.Slice(N1, (0,))))


class World:
    """A state with jobs a, b and c on two nodes of four, and a clock that ticks by tens."""

    def __init__(self) -> None:
        self.state = State(parse_cluster("2x4:v100"))
        self.now = 0.0
        for job in JOBS.values():
            self.state.fold(0.0, facts.Submitted(job))

    def tell(self, event: facts.Event) -> list[Action]:
        self.now += 10.0
        return self.state.fold(self.now, event)

    def decide(self, **changes: model.Allocation | None) -> list[Action]:
        named = {model.JobId(name): to for name, to in changes.items()}
        return self.tell(facts.Decided(self.state.decisions + 1, named))

    def running(self, job: model.JobId, to: model.Allocation) -> None:
        self.decide(**{job: to})
        self.tell(facts.Started(job, self.attempt(job)))

    def attempt(self, job: model.JobId) -> int:
        return int(self.state.table.get(self.state.table.row(job), TableColumns.ATTEMPT))

    def stage(self, job: model.JobId) -> model.Stage:
        return model.Stage(int(self.state.table.get(self.state.table.row(job), TableColumns.STAGE)))

    def held(self, job: model.JobId) -> model.Allocation | None:
        return self.state.table.allocations[self.state.table.row(job)]

    def ran(self, job: model.JobId) -> float:
        return float(self.state.table.ran(self.now)[self.state.table.row(job)])

    @property
    def idle(self) -> int:
        return self.state.free.idle()


def start(job: model.JobId, to: model.Allocation, attempt: int = 1) -> Start:
    return Start(JOBS[job], to, attempt)


# ---- arriving and starting


def test_a_new_job_waits() -> None:
    world = World()

    assert world.stage(A) is model.Stage.PENDING
    assert world.held(A) is None
    assert world.idle == 8


def test_a_job_may_not_be_submitted_twice() -> None:
    with pytest.raises(WeftError, match="job 'a' was submitted twice"):
        World().tell(facts.Submitted(JOBS[A]))


def test_a_waiting_job_that_is_given_devices_is_started() -> None:
    world = World()

    assert world.decide(a=on(0, 1)) == [start(A, on(0, 1))]
    assert world.stage(A) is model.Stage.STARTING
    assert world.held(A) == on(0, 1)
    assert world.idle == 6
    assert world.ran(A) == 0.0


def test_a_started_job_runs_and_its_meters_count() -> None:
    world = World()
    world.decide(a=on(0, 1))

    assert world.tell(facts.Started(A, 1)) == []

    assert world.stage(A) is model.Stage.RUNNING
    world.now += 30.0
    assert world.ran(A) == 30.0
    assert world.state.table.service(world.now)[0] == 60.0


def test_a_shared_job_attains_service_by_its_share() -> None:
    world = World()
    world.running(A, on(0, 1, share=0.25))

    world.now += 40.0

    assert world.state.table.service(world.now)[0] == 20.0


def test_the_news_that_an_older_attempt_started_changes_nothing() -> None:
    world = World()
    world.decide(a=on(0, 1))
    world.decide(a=None)
    world.tell(facts.Stopped(A, 1))
    world.decide(a=on(2, 3))

    assert world.tell(facts.Started(A, 1)) == []

    assert world.stage(A) is model.Stage.STARTING
    world.tell(facts.Started(A, 2))
    assert world.stage(A) is model.Stage.RUNNING


def test_a_start_that_arrives_after_the_stop_was_asked_changes_nothing() -> None:
    world = World()
    world.decide(a=on(0, 1))
    world.decide(a=None)

    assert world.tell(facts.Started(A, 1)) == []

    assert world.stage(A) is model.Stage.STOPPING
    assert world.ran(A) == 0.0


def test_a_job_that_could_not_be_started_waits_again_with_a_retry_counted() -> None:
    world = World()
    world.decide(a=on(0, 1))

    assert world.tell(facts.StartFailed(A, 1, "no image")) == []

    assert (world.stage(A), world.held(A), world.idle) == (model.Stage.PENDING, None, 8)
    assert world.state.table.get(0, TableColumns.RETRIES) == 1.0
    assert world.decide(a=on(0, 1)) == [start(A, on(0, 1), 2)]


# ---- stopping


def test_taking_away_stops_the_attempt_and_frees_the_promise_at_once() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.decide(a=None) == [Stop(A, 1)]

    assert (world.stage(A), world.held(A), world.idle) == (model.Stage.STOPPING, None, 8)


def test_a_job_executes_until_it_has_stopped() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None)

    assert world.tell(facts.Stopped(A, 1)) == []

    world.now += 100.0
    assert world.ran(A) == 20.0
    assert world.stage(A) is model.Stage.PENDING


def test_taking_nothing_away_from_a_waiting_job_is_no_action() -> None:
    assert World().decide(a=None) == []


@pytest.mark.parametrize("news", [facts.Stopped(A, 7), facts.Finished(A, 9)])
def test_the_news_that_an_older_attempt_ended_changes_nothing(news: facts.Event) -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.tell(news) == []

    assert world.stage(A) is model.Stage.RUNNING


# ---- moving


def test_a_move_stops_first_and_starts_once_the_job_has_left() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.decide(a=on(2, 3)) == [Stop(A, 1)]
    assert world.held(A) == on(2, 3)
    assert world.idle == 6
    assert world.tell(facts.Stopped(A, 1)) == [start(A, on(2, 3), 2)]
    assert world.stage(A) is model.Stage.STARTING


def test_a_moving_job_stops_counting_while_it_is_between_places() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=on(2, 3))
    world.tell(facts.Stopped(A, 1))
    at = world.ran(A)

    world.now += 50.0
    assert world.ran(A) == at

    world.state.fold(world.now, facts.Started(A, 2))
    world.now += 5.0
    assert world.ran(A) == at + 5.0


def test_a_start_on_devices_of_another_waits_until_they_are_vacated() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.decide(a=None, b=on(1, 2)) == [Stop(A, 1)]
    assert world.stage(B) is model.Stage.STARTING
    assert world.tell(facts.Stopped(A, 1)) == [start(B, on(1, 2))]


def test_a_start_elsewhere_does_not_wait() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.decide(a=None, b=on(0, 1, node=N1)) == [Stop(A, 1), start(B, on(0, 1, node=N1))]


def test_a_move_also_waits_for_the_devices_of_others() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.running(B, on(2, 3))

    assert world.decide(a=on(2, 3), b=on(0, 1)) == [Stop(A, 1), Stop(B, 1)]
    assert world.tell(facts.Stopped(A, 1)) == []
    released = world.tell(facts.Stopped(B, 1))

    assert sorted(released, key=str) == [start(A, on(2, 3), 2), start(B, on(0, 1), 2)]


def test_devices_are_vacated_only_when_the_last_who_leaves_them_has() -> None:
    world = World()
    world.running(A, on(0, share=0.5))
    world.running(B, on(0, share=0.5))
    world.decide(a=None, b=None, c=on(0, 1))

    assert world.tell(facts.Stopped(B, 1)) == []
    assert world.tell(facts.Stopped(A, 1)) == [start(C, on(0, 1))]


def test_a_stopped_job_restarts_only_after_it_has_left() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None)

    assert world.decide(a=on(0, 1, node=N1)) == []
    assert world.tell(facts.Stopped(A, 1)) == [start(A, on(0, 1, node=N1), 2)]


def test_a_start_held_back_is_taken_away_without_a_stop() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    assert world.decide(b=None) == []
    assert (world.stage(B), world.idle) == (model.Stage.PENDING, 8)
    assert world.tell(facts.Stopped(A, 1)) == []


def test_a_start_held_back_that_is_moved_starts_at_the_new_place() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    assert world.decide(b=on(2, 3)) == [start(B, on(2, 3), 2)]
    assert world.tell(facts.Stopped(A, 1)) == []


def test_a_start_held_back_whose_batch_changes_starts_with_the_new_one() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))
    to = replace(on(0, 1), batch=model.Batch(32))

    assert world.decide(b=to) == []
    assert world.tell(facts.Stopped(A, 1)) == [start(B, to)]


def test_a_start_held_back_whose_share_grows_waits_for_who_makes_room() -> None:
    world = World()
    world.running(A, on(0))
    world.running(C, on(1, share=0.5))
    world.decide(a=None, b=on(0, 1, share=0.5))

    assert world.decide(c=None, b=on(0, 1)) == [Stop(C, 1)]
    assert world.tell(facts.Stopped(A, 1)) == []
    assert world.tell(facts.Stopped(C, 1)) == [start(B, on(0, 1))]


def test_jobs_may_swap_places_in_one_decision() -> None:
    world = World()
    world.running(A, on(0, 1, 2, 3))
    world.running(B, on(0, 1, 2, 3, node=N1))

    world.decide(a=on(0, 1, 2, 3, node=N1), b=on(0, 1, 2, 3))

    assert world.idle == 0


# ---- adjusting in place


def test_another_batch_on_the_same_devices_is_an_adjustment() -> None:
    world = World()
    world.running(A, on(0, 1))
    to = replace(on(0, 1), batch=model.Batch(64, 2))

    assert world.decide(a=to) == [Adjust(A, 1, to)]
    assert (world.stage(A), world.held(A), world.attempt(A)) == (model.Stage.RUNNING, to, 1)


def test_the_ledger_follows_a_change_of_share_in_place() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.decide(a=on(0, 1, share=0.5)) == [Adjust(A, 1, on(0, 1, share=0.5))]

    assert world.state.free.room() == 7.0


def test_the_service_meter_follows_a_change_of_share_in_place() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=on(0, 1, share=0.5))
    attained = world.state.table.service(world.now)[0]

    world.now += 10.0

    assert attained == 20.0
    assert world.state.table.service(world.now)[0] == 30.0


def test_two_jobs_make_room_for_each_other_in_place() -> None:
    world = World()
    world.running(A, on(0, 1))

    actions = world.decide(b=on(0, 1, share=0.5), a=on(0, 1, share=0.5))

    assert actions == [Adjust(A, 1, on(0, 1, share=0.5)), start(B, on(0, 1, share=0.5))]


# ---- ending


def test_a_finished_job_leaves_with_what_it_received() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.tell(facts.Finished(A, 1)) == []

    (ended,) = world.state.ended
    assert (ended.job.id, ended.ran, ended.service, ended.finished) == (A, 10.0, 20.0, True)
    assert A not in world.state.table
    assert world.idle == 8


def test_a_job_may_finish_before_the_stop_takes_effect() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    assert world.tell(facts.Finished(A, 1)) == [start(B, on(0, 1))]

    assert world.state.ended[0].finished
    assert A not in world.state.table
    assert world.tell(facts.Stopped(A, 1)) == []


def test_a_moving_job_that_finishes_gives_its_next_place_back() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=on(2, 3))

    assert world.tell(facts.Finished(A, 1)) == []

    assert world.idle == 8
    assert world.tell(facts.Stopped(A, 1)) == []


def test_a_cancelled_job_that_finishes_instead_of_stopping_vacates_its_devices() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.tell(facts.Cancelled(A))
    assert world.decide(b=on(0, 1)) == []

    assert world.tell(facts.Finished(A, 1)) == [start(B, on(0, 1))]

    assert [ended.finished for ended in world.state.ended] == [False]


def test_a_cancelled_job_that_dies_instead_of_stopping_vacates_its_devices() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.tell(facts.Cancelled(A))
    world.decide(b=on(0, 1))

    assert world.tell(facts.Failed(A, 1, "killed")) == [start(B, on(0, 1))]


def test_a_failed_attempt_with_retry_waits_again() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.tell(facts.Failed(A, 1, "oom", retry=True)) == []

    assert (world.stage(A), world.held(A), world.idle) == (model.Stage.PENDING, None, 8)
    assert world.ran(A) == 10.0
    assert world.state.table.get(0, TableColumns.RETRIES) == 1.0
    assert world.state.ended == []


def test_a_failed_attempt_without_retry_is_the_end() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.tell(facts.Failed(A, 1, "bug")) == []

    assert A not in world.state.table
    assert [ended.finished for ended in world.state.ended] == [False]
    assert world.idle == 8


def test_an_attempt_that_dies_while_it_is_being_stopped_has_left() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    assert world.tell(facts.Failed(A, 1, "killed", retry=True)) == [start(B, on(0, 1))]

    assert world.stage(A) is model.Stage.PENDING
    assert world.state.table.get(0, TableColumns.RETRIES) == 0.0


# ---- cancelling


def test_cancelling_a_waiting_job_needs_no_action() -> None:
    world = World()

    assert world.tell(facts.Cancelled(A)) == []

    assert A not in world.state.table


@pytest.mark.parametrize("started", [True, False], ids=["running", "starting"])
def test_cancelling_a_job_on_devices_stops_it(started: bool) -> None:
    world = World()
    world.decide(a=on(0, 1))
    if started:
        world.tell(facts.Started(A, 1))

    assert world.tell(facts.Cancelled(A)) == [Stop(A, 1)]

    assert (A in world.state.table, world.idle) == (False, 8)
    assert world.decide(b=on(0, 1)) == []
    assert world.tell(facts.Stopped(A, 1)) == [start(B, on(0, 1))]


def test_cancelling_a_job_held_back_forgets_its_start() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    assert world.tell(facts.Cancelled(B)) == []

    assert world.tell(facts.Stopped(A, 1)) == []
    assert world.idle == 8


def test_cancelling_an_unknown_job_is_harmless() -> None:
    assert World().tell(facts.Cancelled(model.JobId("who"))) == []


# ---- machines


def test_a_lost_node_takes_every_gang_that_touches_it() -> None:
    world = World()
    world.running(A, two_nodes())
    world.running(B, on(1, 2, node=N1))
    world.running(C, on(0, 1))

    assert world.tell(facts.NodeDown(N1)) == [Stop(A, 1), Stop(B, 1)]

    assert (world.held(A), world.held(B), world.held(C)) == (None, None, on(0, 1))
    assert [node.id for node in world.state.cluster.nodes] == [N0]
    assert world.idle == 2


def test_the_other_node_of_a_lost_gang_is_free_once_it_has_left() -> None:
    world = World()
    world.running(A, two_nodes())
    world.tell(facts.NodeDown(N1))

    assert world.decide(b=on(2, 3)) == []
    assert world.tell(facts.Stopped(A, 1)) == [start(B, on(2, 3))]


def test_jobs_on_a_lost_node_do_not_execute_any_more() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.tell(facts.NodeDown(N0))

    world.now += 500.0

    assert world.ran(A) == 10.0


def test_a_start_held_back_on_a_lost_node_is_forgotten() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    assert world.tell(facts.NodeDown(N0)) == []

    assert world.stage(B) is model.Stage.PENDING
    assert world.tell(facts.Stopped(A, 1)) == []


def test_losing_an_unknown_node_is_harmless() -> None:
    world = World()

    assert world.tell(facts.NodeDown(model.NodeId("who"))) == []
    assert world.idle == 8


def test_a_node_that_comes_back_is_empty_and_at_its_place() -> None:
    world = World()
    whole = world.state.cluster
    world.running(A, on(0, 1))
    world.running(B, on(0, 1, node=N1))
    world.tell(facts.NodeDown(N0))

    assert world.tell(facts.NodeUp(whole.nodes[0])) == []

    assert world.state.cluster == whole
    assert world.idle == 6
    assert world.state.free.on(0) == 4
    assert world.held(B) == on(0, 1, node=N1)


def test_capacity_is_counted_once_for_machines_that_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, counted = World(), []
    world.running(A, on(0, 1))
    more = parse_cluster("100x4:t4").nodes
    real = Capacity.__init__

    def count(self: Capacity, cluster: Cluster) -> None:
        counted.append(len(cluster.nodes))
        real(self, cluster)

    monkeypatch.setattr(Capacity, "__init__", count)
    for node in more:
        world.tell(facts.NodeUp(node))

    assert (world.idle, world.held(A)) == (6 + 400, on(0, 1))
    assert counted == [102]


def test_a_node_that_reports_itself_again_keeps_its_jobs() -> None:
    world = World()
    world.running(A, on(0, 1))

    world.tell(facts.NodeUp(world.state.cluster.nodes[0]))

    assert (world.held(A), world.idle) == (on(0, 1), 6)


def test_a_node_that_comes_back_with_other_devices_has_lost_its_jobs() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.running(B, on(0, 1, node=N1))
    smaller = replace(world.state.cluster.nodes[0], gpus=2)

    assert world.tell(facts.NodeUp(smaller)) == [Stop(A, 1)]

    assert (world.held(A), world.held(B)) == (None, on(0, 1, node=N1))
    assert world.idle == 4
    assert world.state.cluster.nodes[0] == smaller


# ---- decisions


def test_a_decision_is_numbered_and_says_when_to_wake() -> None:
    world = World()

    world.tell(facts.Decided(41, wake_at=99.0))

    assert (world.state.decisions, world.state.wake_at) == (41, 99.0)
    world.tell(facts.Woken())
    assert world.state.wake_at is None


def test_stops_come_before_starts() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.running(B, on(2, 3))

    actions = world.decide(c=on(0, 1, node=N1), b=None, a=None)

    assert actions == [Stop(B, 1), Stop(A, 1), start(C, on(0, 1, node=N1))]


def test_a_rejected_job_leaves_and_its_submitter_is_told() -> None:
    world = World()

    assert world.tell(facts.Decided(1, rejected={A: "too large"})) == [Reject(A, "too large")]

    assert A not in world.state.table
    assert [ended.finished for ended in world.state.ended] == [False]


def test_a_running_job_that_is_rejected_is_stopped() -> None:
    world = World()
    world.running(A, on(0, 1))

    assert world.tell(facts.Decided(2, rejected={A: "late"})) == [Stop(A, 1), Reject(A, "late")]
    assert world.idle == 8


# ---- reports


def test_the_last_report_of_a_job_is_kept_until_it_leaves() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.tell(facts.Reported(A, 1, Report(loss=2.0)))
    world.tell(facts.Reported(A, 1, Report(loss=1.0)))

    assert world.state.reports[A].report == Report(loss=1.0)

    world.tell(facts.Finished(A, 1))
    assert world.state.reports == {}


def test_a_report_of_a_job_that_left_is_not_kept() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.tell(facts.Finished(A, 1))

    world.tell(facts.Reported(A, 1, Report(loss=3.0)))

    assert world.state.reports == {}


def test_a_suspended_job_leaves_its_devices_and_stays_suspended() -> None:
    world = World()
    world.running(A, on(0, 1))

    asked = world.tell(facts.Suspended(A))
    leaving = world.stage(A)
    world.tell(facts.Stopped(A, 1))

    assert asked == [Stop(A, 1)]
    assert (leaving, world.stage(A)) == (model.Stage.STOPPING, model.Stage.PENDING)
    assert world.ran(A) == 20.0
    assert world.state.table.suspended == {A}
    world.tell(facts.Resumed(A))
    assert world.state.table.suspended == set()


def test_a_start_that_is_held_back_is_dropped_when_its_job_is_suspended() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    asked = world.tell(facts.Suspended(B))
    freed = world.tell(facts.Stopped(A, 1))

    assert (asked, freed) == ([], [])
    assert (world.stage(B), world.idle) == (model.Stage.PENDING, 8)


def test_a_job_that_ends_before_its_suspension_reaches_it_has_ended() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.tell(facts.Suspended(A))

    world.tell(facts.Finished(A, 1))

    assert A not in world.state.table
    assert world.state.table.suspended == set()
    assert world.state.ended[-1].finished


def test_a_start_that_is_held_back_is_of_the_priority_that_its_job_has_then() -> None:
    world = World()
    world.running(A, on(0, 1))
    world.decide(a=None, b=on(0, 1))

    world.tell(facts.PriorityChanged(B, -1.0, model.Tier.OPPORTUNISTIC))
    freed = world.tell(facts.Stopped(A, 1))

    now = replace(JOBS[B], priority=-1.0, tier=model.Tier.OPPORTUNISTIC)
    assert freed == [Start(now, on(0, 1), 1)]
    row = world.state.table.row(B)
    assert world.state.table.get(row, TableColumns.PRIORITY) == -1.0
    assert world.state.table.get(row, TableColumns.TIER) == model.Tier.OPPORTUNISTIC


def test_commands_to_a_job_that_is_gone_change_nothing() -> None:
    world = World()
    world.tell(facts.Cancelled(A))

    for event in (facts.Suspended(A), facts.Resumed(A), facts.PriorityChanged(A, 1.0)):
        assert world.tell(event) == []

    assert world.state.table.suspended == set()


def test_a_promised_deadline_is_kept_with_the_state_and_ends_with_the_job() -> None:
    state = State(parse_cluster("2x4:v100"))
    for job in (A, B):
        state.fold(0.0, facts.Submitted(JOBS[job]))
    state.fold(1.0, facts.Decided(1, promised=(A, B)))
    state.fold(2.0, facts.Cancelled(B))

    again = load_state(save_state(state), JOBS)

    assert state.table.promised == again.table.promised == {A}
