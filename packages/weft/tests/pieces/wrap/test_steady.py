"""Running jobs are changed only after a while, and only where that pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import InvalidConfig
from weft.core.events.actions import Start, Stop
from weft.core.events.event import Cancelled, Decided, Event, Reported, Started, Stopped, Submitted
from weft.core.events.job_end import Ended
from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Config, Demand, Job, JobId
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.core.state.table import JobTable
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.learnt_costs import LearntCosts
from weft.perf.linear import LinearBeliefs
from weft.pieces.wrap.steady import SteadyMemory, SteadyWrapper

A, B = JobId("a"), JobId("b")
STEP = Report(step_s=1.0, grad_s=0.9, last_s=1.0, batch=8.0, per_gpu=4.0, replicas=2.0)


@dataclass(frozen=True, slots=True)
class Equal:
    """Divides the devices equally among all jobs, at every decision: it thrashes."""

    about = About("equal", "of this test", controls=Controls.COUNT)

    def decide(self, view: View) -> Plan:
        count = len(view.table)
        if not count or not view.cluster.nodes:
            return Plan()
        for on in view.held().values():
            view.free.give(on)
        each = max(view.cluster.gpus // count, 1)
        wanted: dict[JobId, Allocation] = {}
        for job in view.table.jobs:
            size = min(max(each, job.demand.min), job.demand.max)
            if view.free.on(0) >= size:
                on = Allocation((view.free.slice(0, size),))
                view.free.take(on)
                wanted[job.id] = on
        return Plan.target(view, wanted)


@dataclass(frozen=True, slots=True)
class MovesAside:
    """Moves the job on device 0 to device 1 and gives its place to the one that waits."""

    about = About("moves aside", "of this test", controls=Controls.COUNT)

    def decide(self, view: View) -> Plan:
        to = dict(zip((B, A), (0b1, 0b10), strict=True))
        jobs = [job.id for job in view.table.jobs]
        changes = {job: Allocation((view.free.slice_of(0, to[job]),)) for job in jobs}
        return Plan(changes if {A, B} <= {*jobs} else {})


def running(*names: JobId, gpus: int) -> State:
    """Jobs of 1 to 4 GPUs on a node of 4, each running on `gpus` since 0."""
    state = State(parse_cluster("1x4:v100"))
    for number, name in enumerate(names):
        state.fold(0.0, Submitted(Job(name, demand=Demand(1, 1, 4))))
        mask = ((1 << gpus) - 1) << (number * gpus)
        on = Allocation((state.free.slice_of(0, mask),))
        state.fold(0.0, Decided(number + 1, {name: on}))
        state.fold(0.0, Started(name, 1))
    return state


def view(state: State, now: float, memory: object = None) -> View:
    return View(now, state.table, state.cluster, state.free, memory=memory)


def test_a_job_that_just_started_is_left_alone_and_who_waits_for_it_is_decided_later() -> None:
    state = running(A, gpus=4)
    state.fold(10.0, Submitted(Job(B, demand=Demand(1, 1, 4))))

    plan = SteadyWrapper(Equal(), min_run_s=60.0).decide(view(state, 10.0))

    assert plan.changes == {}
    assert plan.wake_at == 60.0
    assert plan.blockers == {B: Blocker.STEADY}
    assert "left alone for 60 s after they start or change" in plan.reasons[B]
    assert "1 GPU" in plan.reasons[B]  # the least that it runs on


@dataclass(frozen=True, slots=True)
class Soon(Equal):
    """The same, and asks to be asked again."""

    def decide(self, view: View) -> Plan:
        plan = Equal.decide(self, view)
        return replace(plan, wake_at=view.now + 5.0) if len(view.table) else plan


def test_who_is_left_alone_is_looked_at_again_though_nobody_waits() -> None:
    state = running(A, gpus=2)

    plan, soon = (SteadyWrapper(inner).decide(view(state, 10.0)) for inner in (Equal(), Soon()))

    assert (plan.changes, plan.wake_at) == ({}, 60.0)
    assert (soon.changes, soon.wake_at) == ({}, 15.0)


@pytest.mark.parametrize(("now", "gives_way"), [(59.0, False), (61.0, True)])
def test_a_minute_is_what_is_left_unless_told_otherwise(now: float, gives_way: bool) -> None:
    state = running(A, gpus=4)
    state.fold(now, Submitted(Job(B, demand=Demand(1, 1, 4))))

    plan = SteadyWrapper(Equal()).decide(view(state, now))

    assert (B in plan.changes) == gives_way


def test_what_was_said_is_said_once_and_taken_back_when_it_holds_no_more() -> None:
    state = running(A, gpus=4)
    state.fold(10.0, Submitted(Job(B, demand=Demand(1, 1, 4))))
    steady = SteadyWrapper(Equal(), min_run_s=60.0)

    first = steady.decide(view(state, 10.0))
    second = steady.decide(view(state, 20.0, first.memory))
    third = steady.decide(view(state, 70.0, second.memory))

    assert (dict(second.reasons), third.reasons[B]) == ({}, "")


def test_after_a_while_it_gives_way() -> None:
    state = running(A, gpus=4)
    state.fold(60.0, Submitted(Job(B, demand=Demand(1, 1, 4))))

    plan = SteadyWrapper(Equal(), min_run_s=60.0).decide(view(state, 60.0))

    held = view(state, 60.0).after(plan)
    assert {job: on.gpus for job, on in held.items()} == {A: 2, B: 2}
    assert isinstance(plan.memory, SteadyMemory)
    assert plan.memory.since == {A: (2, 60.0), B: (1, 60.0)}


@pytest.mark.parametrize(("ran", "grows"), [(100.0, False), (500.0, True)])
def test_it_grows_only_where_that_saves_more_than_a_restart_costs(ran: float, grows: bool) -> None:
    state = running(A, gpus=2)  # as far as anybody knows it runs as long again, at twice the speed

    plan = SteadyWrapper(Equal(), min_run_s=60.0, margin=2.0).decide(view(state, ran))

    assert (A in plan.changes) == grows


class ThreeTimes(LinearBeliefs):
    """An a100 is three times as fast as any other GPU."""

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        times = [3.0 if config.kind == "a100" else 1.0 for config in configs]
        return np.asarray(super().goodputs(table, configs) * np.array(times))


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Moves the one job to as many GPUs of the other node."""

    about = About("elsewhere", "of this test", controls=Controls.COUNT)

    def decide(self, view: View) -> Plan:
        on = view.allocation(0) if len(view.table) else None
        if on is None:
            return Plan()
        there = 1 - view.cluster.index[on.slices[0].node]
        return Plan({view.job(0).id: Allocation((view.free.slice(there, on.gpus),))})


@pytest.mark.parametrize(
    ("start", "ran", "moves"), [(0, 60.0, False), (0, 500.0, True), (1, 500.0, False)]
)
def test_it_moves_to_as_many_gpus_of_a_faster_kind_where_that_pays(
    start: int, ran: float, moves: bool
) -> None:
    state = State(parse_cluster("1x4:t4+1x4:a100"))
    state.fold(0.0, Submitted(Job(A, demand=Demand(2, 1, 4))))
    state.fold(0.0, Decided(1, {A: Allocation((state.free.slice(start, 2),))}))
    state.fold(0.0, Started(A, 1))
    seen = replace(view(state, ran), knowledge=Knowledge(beliefs=ThreeTimes()))

    plan = SteadyWrapper(Elsewhere(), min_run_s=60.0, margin=2.0).decide(seen)

    assert (A in plan.changes) == moves


@dataclass(frozen=True, slots=True)
class Over(PointPredictor, NothingLearnt):
    """Every job should have ended by now."""

    label = "over"
    asks = PredictorNeeds()

    def remaining(self, table: JobTable, now: float) -> Floats:
        return np.zeros(len(table))

    def learn(self, ended: Ended) -> None:
        pass


def test_who_runs_longer_than_predicted_is_taken_to_run_as_long_again_and_may_grow() -> None:
    known = replace(view(running(A, gpus=2), 500.0), knowledge=Knowledge(Over()))

    plan = SteadyWrapper(Equal(), min_run_s=60.0, margin=2.0).decide(known)

    assert A in plan.changes


@pytest.mark.parametrize(("progress", "grows"), [(0.5, True), (0.99, False)])
def test_its_own_progress_tells_better_than_a_prediction(progress: float, grows: bool) -> None:
    state, pooled = running(A, gpus=2), PooledBeliefs()
    on = state.table.allocations[0]
    assert on is not None
    changed = replace(STEP, progress=progress, work=1e6)
    pooled.observe(Job(A), "v100", changed, AttemptSource(1, on, 0.0, 500.0, 500.0))
    known = replace(view(state, 500.0), knowledge=Knowledge(Over(), pooled=pooled))

    plan = SteadyWrapper(Equal(), min_run_s=60.0, margin=2.0).decide(known)

    assert (A in plan.changes) == grows


def live_view(state: State, now: float) -> View:
    """Jobs train, and were seen to change their devices live: ready in 0.4 s, paused for 0.1 s."""
    costs = LearntCosts()
    state.fold(1.0, Reported(A, 1, STEP))
    for name in (A, B):
        costs.observe_able(Job(name), 0.0)
        costs.observe_pause(Job(name), "v100", 0.1, 0.0, 0.4)
    return replace(view(state, now), knowledge=Knowledge(costs=costs))


@pytest.mark.parametrize(("now", "gives_way"), [(4.0, False), (6.0, True)])
def test_who_changes_as_it_trains_is_left_alone_for_ten_times_what_that_takes(
    now: float, gives_way: bool
) -> None:
    state = running(A, gpus=4)
    state.fold(now, Submitted(Job(B, demand=Demand(1, 1, 4))))

    plan = SteadyWrapper(Equal(), min_run_s=60.0).decide(live_view(state, now))

    held = live_view(state, now).after(plan)
    assert {job: on.gpus for job, on in held.items()} == ({A: 2, B: 2} if gives_way else {A: 4})
    assert plan.wake_at == (60.0 if gives_way else 5.0)  # A may be stopped only then


def test_who_changes_as_it_trains_is_not_stopped_sooner_for_that() -> None:
    class Stops(Equal):
        def decide(self, view: View) -> Plan:
            return Plan({A: None}) if A in view.held() else Plan()

    state = running(A, gpus=4)
    state.fold(6.0, Submitted(Job(B, demand=Demand(4, 4, 4))))

    plan = SteadyWrapper(Stops(), min_run_s=60.0).decide(live_view(state, 6.0))

    assert (plan.changes, plan.wake_at) == ({}, 60.0)


def test_it_grows_live_where_that_saves_more_than_the_pause() -> None:
    state = running(A, gpus=2)

    plan = SteadyWrapper(Equal(), min_run_s=60.0, margin=2.0).decide(live_view(state, 20.0))

    assert A in plan.changes


def test_policies_that_choose_no_sizes_are_left_alone() -> None:
    class Stops(Equal):
        about = About("stops", "of this test")

        def decide(self, view: View) -> Plan:
            return Plan({A: None})

    plan = SteadyWrapper(Stops(), min_run_s=60.0).decide(view(running(A, gpus=4), 1.0))

    assert plan.changes == {A: None}


def test_times_below_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="min_run_s"):
        SteadyWrapper(Equal(), min_run_s=-1.0)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0.1, 90.0)), max_size=30))
def test_nobody_is_changed_twice_within_the_time(comings: list[tuple[str, float]]) -> None:
    scheduler = Scheduler(SteadyWrapper(Equal(), min_run_s=60.0), parse_cluster("1x4:v100"))
    began: dict[JobId, float] = {}
    now = 0.0
    for name, pause in comings:
        now += pause
        job = JobId(name)
        gone = job in scheduler.state.table
        event = Cancelled(job) if gone else Submitted(Job(job, demand=Demand(1, 1, 4)))
        stopped = _settled(scheduler, now, event, began)

        for changed in stopped - {job}:
            assert now - began[changed] >= 60.0 - 1e-3
        began |= {
            submitted.id: now
            for submitted, on in zip(
                scheduler.state.table.jobs, scheduler.state.table.allocations, strict=True
            )
            if on is not None and (submitted.id in stopped or submitted.id not in began)
        }
        began = {running: at for running, at in began.items() if running in scheduler.state.table}


def _settled(
    scheduler: Scheduler, now: float, event: Event, began: dict[JobId, float]
) -> set[JobId]:
    """Everything that follows from an event is done at once; who was stopped."""
    stopped: set[JobId] = set()
    todo: list[Event] = [event]
    while todo:
        actions = scheduler.step(now, [todo.pop(0)])
        for action in actions:
            if isinstance(action, Stop):
                stopped.add(action.job)
                todo.append(Stopped(action.job, action.attempt))
            elif isinstance(action, Start):
                todo.append(Started(action.job.id, action.attempt))
    return stopped & began.keys()


def test_ages_come_from_what_is_remembered() -> None:
    state = running(A, gpus=4)
    state.fold(100.0, Submitted(Job(B, demand=Demand(1, 1, 4))))
    memory = SteadyMemory(since={A: (1, 90.0)})

    plan = SteadyWrapper(Equal(), min_run_s=60.0).decide(view(state, 100.0, memory))

    assert plan.changes == {}
    assert np.isclose(plan.wake_at or 0.0, 150.0)


@pytest.mark.parametrize(("now", "blockers"), [(30.0, {B: Blocker.STEADY}), (1_000.0, {})])
def test_a_reason_names_the_rule_only_while_the_rule_holds(
    now: float, blockers: dict[JobId, Blocker]
) -> None:
    """Later the move is refused since it gains the job that would move nothing."""
    state = running(A, gpus=1)
    state.fold(1.0, Submitted(Job(B)))
    known = Knowledge(beliefs=LinearBeliefs())

    plan = SteadyWrapper(MovesAside()).decide(
        View(now, state.table, state.cluster, state.free, known)
    )

    assert not plan.changes
    assert plan.blockers == blockers
