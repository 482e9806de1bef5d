"""When the scheduler decides: on news, on wake-ups, or at multiples of a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from weft.core.events import event as facts
from weft.core.events.actions import Start, Wake
from weft.core.events.job_end import Ended
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import After, Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.policies.fifo import Fifo

A, B = JobId("a"), JobId("b")
HERE = Allocation((Slice(NodeId("v100-0"), (0,)),))


@dataclass
class Diary:
    """A policy that notes when it was asked, and answers from a list."""

    every: float | None = None
    answers: list[Plan] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    views: list[View] = field(default_factory=list)

    @property
    def about(self) -> About:
        return About("diary", "test", every=self.every)

    def decide(self, view: View) -> Plan:
        self.asked.append(view.now)
        self.views.append(view)
        return self.answers.pop(0) if self.answers else Plan()


@dataclass
class Pupil(PointPredictor, NothingLearnt):
    """A predictor that notes what it is told."""

    label: str = "pupil"
    asks = PredictorNeeds()
    heard: list[tuple[str, float]] = field(default_factory=list)

    def remaining(self, table: JobTable, now: float) -> Floats:
        return np.zeros(len(table))

    def learn(self, ended: Ended) -> None:
        self.heard.append((ended.job.id, ended.ran))


def scheduler_of(diary: Diary, journal: list[tuple[float, facts.Event]] | None = None) -> Scheduler:
    keep = None if journal is None else lambda at, event: journal.append((at, event))
    return Scheduler(diary, parse_cluster("2x1:v100"), journal=keep)


def submitted(job: JobId) -> facts.Submitted:
    return facts.Submitted(Job(job, demand=Demand(1)))


# ---- on news


def test_the_policy_is_asked_once_a_step_however_much_happened() -> None:
    diary = Diary()

    scheduler_of(diary).step(5.0, [submitted(A), submitted(B)])

    assert diary.asked == [5.0]
    assert len(diary.views[0].table) == 2


def test_answers_to_its_own_actions_are_no_news() -> None:
    diary = Diary(answers=[Plan({A: HERE})])
    scheduler = scheduler_of(diary)
    scheduler.step(0.0, [submitted(A)])

    for event in (facts.Started(A, 1), facts.Reported(A, 1, Report(loss=1.0)), facts.Stopped(A, 1)):
        scheduler.step(1.0, [event])

    assert diary.asked == [0.0]


def test_everything_else_is_news() -> None:
    diary = Diary()
    scheduler = scheduler_of(diary)
    node = scheduler.state.cluster.nodes[1]
    news: list[facts.Event] = [
        submitted(A),
        facts.StartFailed(A, 1),
        facts.Failed(A, 1, retry=True),
        facts.NodeDown(node.id),
        facts.NodeUp(node),
        facts.Finished(A, 1),
        facts.Cancelled(A),
    ]

    for i, event in enumerate(news):
        scheduler.step(float(i), [event])

    assert diary.asked == [float(i) for i in range(len(news))]


def test_decisions_are_numbered_and_memory_comes_back() -> None:
    diary = Diary(answers=[Plan(memory="first"), Plan(memory="second")])
    scheduler = scheduler_of(diary)

    for at in (0.0, 1.0, 2.0):
        scheduler.step(at, [submitted(JobId(f"j{at}"))])

    assert [view.memory for view in diary.views] == [None, "first", "second"]
    assert [view.decision for view in diary.views] == [0, 1, 2]


def test_the_journal_holds_facts_and_decisions_in_order() -> None:
    journal: list[tuple[float, facts.Event]] = []
    plan = Plan({A: HERE}, wake_at=9.0, reasons={A: "only one"})

    scheduler_of(Diary(answers=[plan]), journal).step(3.0, [submitted(A)])

    decided = facts.Decided(1, {A: HERE}, wake_at=9.0, reasons={A: "only one"})
    assert journal == [(3.0, submitted(A)), (3.0, decided)]


def test_the_service_of_finished_jobs_is_remembered_and_learned_from() -> None:
    diary, pupil = Diary(answers=[Plan({A: HERE})]), Pupil()
    scheduler = Scheduler(diary, parse_cluster("2x1:v100"), knowledge=Knowledge(pupil))
    scheduler.step(0.0, [submitted(A), submitted(B)])
    scheduler.step(0.0, [facts.Started(A, 1)])

    scheduler.step(7.0, [facts.Finished(A, 1)])
    scheduler.step(8.0, [facts.Cancelled(B)])

    assert pupil.heard == [(A, 7.0), (B, 0.0)]
    assert diary.views[-1].history.tolist() == [7.0]


def test_history_grows_beyond_its_first_capacity() -> None:
    diary = Diary()
    scheduler = scheduler_of(diary)
    for i in range(150):
        diary.answers = [Plan({JobId(f"j{i}"): HERE})]
        scheduler.step(i * 10.0, [submitted(JobId(f"j{i}"))])
        scheduler.step(i * 10.0, [facts.Started(JobId(f"j{i}"), 1)])
        scheduler.step(i * 10.0 + i % 7, [facts.Finished(JobId(f"j{i}"), 1)])

    assert diary.views[-1].history.tolist() == [float(i % 7) for i in range(150)]


# ---- wake-ups


def test_a_wish_to_be_woken_is_passed_on_once() -> None:
    diary = Diary(answers=[Plan(wake_at=50.0), Plan(wake_at=50.0)])
    scheduler = scheduler_of(diary)

    assert scheduler.step(0.0, [submitted(A)]) == [Wake(50.0)]
    assert scheduler.step(1.0, [submitted(B)]) == []


def test_a_later_decision_replaces_or_withdraws_the_wish() -> None:
    diary = Diary(answers=[Plan(wake_at=50.0), Plan(wake_at=40.0), Plan()])
    scheduler = scheduler_of(diary)
    scheduler.step(0.0, [submitted(A)])

    assert scheduler.step(1.0, [submitted(B)]) == [Wake(40.0)]
    assert scheduler.step(2.0, [facts.Cancelled(B)]) == [Wake(None)]


def test_the_wake_up_leads_to_a_decision() -> None:
    diary = Diary(answers=[Plan(wake_at=50.0), Plan({A: HERE})])
    scheduler = scheduler_of(diary)
    scheduler.step(0.0, [submitted(A)])

    actions = scheduler.step(50.0, [facts.Woken()])

    assert diary.asked == [0.0, 50.0]
    assert actions == [Start(Job(A, demand=Demand(1)), HERE, 1), Wake(None)]


def test_a_wake_up_nobody_waits_for_is_ignored_and_not_written_down() -> None:
    journal: list[tuple[float, facts.Event]] = []
    diary = Diary()
    scheduler = scheduler_of(diary, journal)

    assert scheduler.step(5.0, [facts.Woken()]) == []

    assert (diary.asked, journal) == ([], [])


def test_a_wake_up_that_comes_too_early_is_asked_for_again() -> None:
    diary = Diary(answers=[Plan(wake_at=50.0)])
    scheduler = scheduler_of(diary)
    scheduler.step(0.0, [submitted(A)])

    assert scheduler.step(49.999, [facts.Woken()]) == [Wake(50.0)]

    assert diary.asked == [0.0]


# ---- rounds


def test_rounds_decide_at_their_multiples_only() -> None:
    diary = Diary(every=60.0)
    scheduler = scheduler_of(diary)

    assert scheduler.step(10.0, [submitted(A)]) == [Wake(60.0)]
    assert scheduler.step(20.0, [submitted(B)]) == []
    assert scheduler.step(60.0, [facts.Woken()]) == [Wake(120.0)]
    assert scheduler.step(119.0, [facts.Cancelled(B)]) == []

    assert diary.asked == [60.0]


def test_something_that_happens_on_a_boundary_is_decided_at_once() -> None:
    diary = Diary(every=60.0)

    actions = scheduler_of(diary).step(120.0, [submitted(A)])

    assert diary.asked == [120.0]
    assert actions == [Wake(180.0)]


def test_a_round_goes_on_as_long_as_jobs_are_active() -> None:
    diary = Diary(every=60.0, answers=[Plan({A: HERE})])
    scheduler = scheduler_of(diary)
    scheduler.step(0.0, [submitted(A)])
    scheduler.step(0.0, [facts.Started(A, 1)])

    for at in (60.0, 120.0, 180.0):
        scheduler.step(at, [facts.Woken()])

    assert diary.asked == [0.0, 60.0, 120.0, 180.0]


def test_rounds_rest_while_no_job_is_active() -> None:
    diary = Diary(every=60.0)
    scheduler = scheduler_of(diary)
    scheduler.step(0.0, [submitted(A)])

    assert scheduler.step(30.0, [facts.Cancelled(A)]) == [Wake(None)]
    assert scheduler.step(60.0, [facts.NodeDown(NodeId("v100-1"))]) == []

    assert diary.asked == [0.0]
    assert scheduler.step(70.0, [submitted(B)]) == [Wake(120.0)]


def test_a_round_may_not_be_cut_short_by_a_wish() -> None:
    diary = Diary(every=60.0, answers=[Plan(wake_at=90.0)])
    scheduler = scheduler_of(diary)

    assert scheduler.step(60.0, [submitted(A)]) == [Wake(90.0)]
    assert scheduler.step(90.0, [facts.Woken()]) == [Wake(120.0)]
    scheduler.step(120.0, [facts.Woken()])

    assert diary.asked == [60.0, 120.0]


def test_rounding_does_not_lose_or_double_a_round() -> None:
    diary = Diary(every=0.1)
    scheduler = scheduler_of(diary)
    (first,) = scheduler.step(0.05, [submitted(A)])
    assert isinstance(first, Wake)
    at = first.at

    for _ in range(200):
        assert at is not None
        (wish,) = scheduler.step(at, [facts.Woken()])
        assert isinstance(wish, Wake)
        at = wish.at

    assert len(diary.asked) == 200
    assert np.allclose(np.diff(diary.asked), 0.1)


# ---- rounds that end early, on a live scheduler


def early_scheduler_of(diary: Diary) -> Scheduler:
    return Scheduler(diary, parse_cluster("2x1:v100"), early_rounds=True)


def test_the_first_job_of_an_idle_service_does_not_wait_for_a_round() -> None:
    diary = Diary(every=600.0, answers=[Plan({A: HERE})])

    actions = early_scheduler_of(diary).step(7.0, [submitted(A)])

    assert diary.asked == [7.0]
    assert any(isinstance(action, Start) for action in actions)


def test_jobs_that_come_soon_after_are_decided_together_after_a_pause() -> None:
    diary = Diary(every=600.0, answers=[Plan({A: HERE})])
    scheduler = early_scheduler_of(diary)
    scheduler.step(7.0, [submitted(A)])

    assert Wake(12.0) in scheduler.step(8.0, [submitted(B)])
    scheduler.step(9.0, [submitted(JobId("c"))])
    scheduler.step(12.0, [facts.Woken()])

    assert diary.asked == [7.0, 12.0]


def test_a_job_that_the_policy_left_waiting_is_not_asked_about_again_and_again() -> None:
    diary = Diary(every=600.0)
    scheduler = early_scheduler_of(diary)

    assert Wake(600.0) in scheduler.step(7.0, [submitted(A)])

    assert diary.asked == [7.0]


def test_a_job_that_does_not_fit_waits_for_the_round() -> None:
    diary = Diary(every=600.0)

    large = facts.Submitted(Job(A, demand=Demand(3)))

    assert Wake(600.0) in early_scheduler_of(diary).step(7.0, [large])
    assert diary.asked == []


@pytest.mark.parametrize(
    "more",
    [
        {"after": After()},  # as a request without dependencies is read
        {"after": After(ok=(JobId("ended"),))},
        {"demand": Demand(2, nodes=2)},
        {"app": "sweep", "max_parallel": 1},
        {"demand": Demand(1, share=0.5)},
    ],
)
def test_whatever_else_a_job_says_it_does_not_wait_for_a_round(more: dict[str, Any]) -> None:
    diary = Diary(every=600.0)
    early_scheduler_of(diary).step(7.0, [facts.Submitted(Job(A, **more))])

    assert diary.asked == [7.0]


@pytest.mark.parametrize(
    "more", [{"after": After(ok=(A,))}, {"app": "sweep", "max_parallel": 1}, {"demand": Demand(0)}]
)
def test_a_round_ends_early_for_nobody_who_waits_for_other_jobs(more: dict[str, Any]) -> None:
    diary = Diary(every=600.0, answers=[Plan({A: HERE})])
    scheduler = early_scheduler_of(diary)
    scheduler.step(7.0, [facts.Submitted(Job(A, app="sweep", max_parallel=1))])

    scheduler.step(20.0, [facts.Submitted(Job(B, **more))])

    assert diary.asked == [7.0]


def test_a_simulation_keeps_to_the_rounds_as_published() -> None:
    diary = Diary(every=600.0)

    scheduler_of(diary).step(7.0, [submitted(A)])

    assert diary.asked == []


@pytest.mark.parametrize("skips_views", [True, False])
def test_a_policy_that_rests_is_asked_unless_views_are_skipped(skips_views: bool) -> None:
    asked: list[float] = []
    scheduler = Scheduler(Fifo(), parse_cluster("1x2:v100"), skips_views=skips_views)

    def note(decide: Callable[[View], Plan], view: View) -> Plan:
        asked.append(view.now)
        return decide(view)

    scheduler.timed = note

    actions = scheduler.step(1.0, [facts.Submitted(Job(A))])

    assert [type(action) for action in actions] == [Start]
    assert asked == ([] if skips_views else [1.0])


def test_a_journal_has_every_decision() -> None:
    with pytest.raises(AssertionError, match="every decision"):
        Scheduler(
            Fifo(), parse_cluster("1x2:v100"), journal=lambda _at, _event: None, skips_views=True
        )
