"""Execution plans are tried when jobs start, and the fastest is remembered."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from weft.core.events.event import Decided, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Config, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.perf.linear import LinearBeliefs
from weft.perf.plans.learnt import LearntPlans
from weft.pieces.size.plans import find_better_plans
from weft.pieces.wrap.restart_costs import speed_ratio
from weft.policies.weft.policy import Weft
from weft_papers.arena.policy import Arena
from weft_papers.rubick.policy import Rubick

DP, ZERO, TP = Execution(), Execution(zero=2), Execution(tensor=2)
KIND = "v100"
JOB = Job(JobId("j"), demand=Demand(2, 1, 8), model="gpt", plans=(DP, ZERO, TP))


def on(gpus: int, plan: Execution | None) -> Allocation:
    whole = None if plan is None else plan.on(gpus)
    return Allocation((Slice(NodeId("n0"), tuple(range(gpus))),), plan=whole)


def tell(plans: LearntPlans, gpus: int, plan: Execution | None, step_s: float) -> None:
    attempt = AttemptSource(1, on(gpus, plan), 0.0, 60.0, 60.0)
    plans.observe(JOB, KIND, Report(step_s=step_s, batch=16.0), attempt)


def order(plans: LearntPlans, gpus: int) -> list[str]:
    return [c.plan.text for c in plans.choices(JOB, Config(KIND, 1, gpus)) if c.plan is not None]


def test_only_plans_that_run_on_so_many_gpus_are_offered_in_the_order_of_the_job() -> None:
    plans = LearntPlans()

    assert order(plans, 1) == ["dp1", "dp1-zero2"]
    assert order(plans, 2) == ["dp2", "dp2-zero2", "dp1-tp2"]


def test_what_nobody_tried_comes_first_and_then_what_is_fastest() -> None:
    plans = LearntPlans()
    tell(plans, 2, DP, 1.0)
    assert order(plans, 2) == ["dp2-zero2", "dp1-tp2", "dp2"]

    tell(plans, 2, ZERO, 2.0)
    tell(plans, 2, TP, 0.5)
    assert order(plans, 2) == ["dp1-tp2", "dp2", "dp2-zero2"]
    assert plans.choices(JOB, Config(KIND, 1, 2))[0].rate == pytest.approx(32.0)


def test_a_size_that_nobody_tried_is_scaled_from_the_nearest() -> None:
    plans = LearntPlans()
    tell(plans, 2, None, 1.0)  # its own
    tell(plans, 2, ZERO, 0.5)

    rates = {c.plan: c.rate for c in plans.choices(JOB, Config(KIND, 1, 4))}

    assert rates[Execution(4)] == pytest.approx(16.0 * 2.0**0.9)
    assert rates[Execution(4, zero=2)] == pytest.approx(32.0 * 2.0**0.9)


def test_a_batch_that_replicas_cannot_share_rules_a_plan_out() -> None:
    plans = LearntPlans()
    tell(plans, 2, DP, 1.0)

    assert order(plans, 8) == ["dp8-zero2", "dp4-tp2", "dp8"]
    assert order(plans, 6) == []  # neither 6 nor 3 replicas share a batch of 16


def test_a_plan_under_which_a_job_died_is_not_chosen_again_unless_there_is_no_other() -> None:
    plans = LearntPlans()
    plans.fail(JOB, KIND, on(2, DP))
    assert order(plans, 2) == ["dp2-zero2", "dp1-tp2"]
    assert "dp4" in order(plans, 4)

    plans.fail(JOB, KIND, on(2, ZERO))
    plans.fail(JOB, KIND, on(2, TP))
    assert order(plans, 2) == ["dp2", "dp2-zero2", "dp1-tp2"]


def test_a_plan_that_trained_before_is_not_blamed() -> None:
    plans = LearntPlans()
    tell(plans, 2, DP, 1.0)
    plans.fail(JOB, KIND, on(2, DP))

    assert "dp2" in order(plans, 2)


def test_what_was_learnt_survives_a_restart_of_the_service() -> None:
    plans, again = LearntPlans(), LearntPlans()
    tell(plans, 2, TP, 0.5)
    plans.fail(JOB, KIND, on(2, DP))

    again.load(json.loads(json.dumps(plans.save())))

    assert again.choices(JOB, Config(KIND, 1, 2)) == plans.choices(JOB, Config(KIND, 1, 2))


def on_a_slow_plan() -> tuple[View, Allocation]:
    """The job runs by one plan for hours, and another is known to be four times as fast."""
    plans = LearntPlans()
    tell(plans, 2, DP, 1.0)
    tell(plans, 2, TP, 0.25)
    tell(plans, 2, ZERO, 1.0)
    state = State(parse_cluster(f"1x2:{KIND}"))
    held = Allocation((state.free.slice_of(0, 0b11),), plan=Execution(2))
    state.fold(0.0, Submitted(JOB))
    state.fold(0.0, Decided(1, {JOB.id: held}))
    state.fold(0.0, Started(JOB.id, 1))
    state.fold(0.0, Reported(JOB.id, 1, Report(step_s=1.0)))
    known = Knowledge(beliefs=LinearBeliefs(), plans=plans)
    return View(10_000.0, state.table, state.cluster, state.free, known), held


def test_a_running_job_changes_its_plan_where_that_pays() -> None:
    view, held = on_a_slow_plan()

    better = find_better_plans(view, ())

    assert {row: to.plan for row, to in better.items()} == {0: Execution(1, 2)}
    assert speed_ratio(view, 0, held, better[0], pooled=False) == pytest.approx(0.25)
    assert find_better_plans(view, {0}) == {}


@pytest.mark.parametrize("policy", [Rubick(), Weft(), Arena()])
def test_policies_change_a_plan_on_the_same_gpus_and_say_why(policy: Policy) -> None:
    view, held = on_a_slow_plan()

    plan = policy.decide(view)

    assert plan.changes == {JOB.id: replace(held, plan=Execution(1, 2))}
    words = "plan dp1-tp2 instead of dp2 on the same GPUs: 4.00 times as fast"
    assert plan.reasons[JOB.id] == words
