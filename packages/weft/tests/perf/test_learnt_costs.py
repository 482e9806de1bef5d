"""What starts and live changes cost, from what was measured."""

from __future__ import annotations

import json

import pytest

from weft.core.knowledge.costs import AttemptSource
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.perf.learnt_costs import LearntCosts


def job(name: str, model: str = "bert") -> Job:
    return Job(JobId(name), model=model)


def attempt(number: int, took: float, node: str = "n0") -> AttemptSource:
    return AttemptSource(
        number, Allocation((Slice(NodeId(node), (0,)),)), 100.0, 100.0 + took, took
    )


def test_the_first_report_of_an_attempt_tells_what_its_start_took() -> None:
    costs = LearntCosts()
    costs.observe_report(job("a"), "h200", attempt(1, 40.0))
    costs.observe_report(job("a"), "h200", attempt(1, 90.0))
    costs.observe_report(job("a"), "h200", attempt(2, 15.0))

    learnt = costs.costs(job("b"), "h200")

    assert (learnt.first_start_s, learnt.restart_s, learnt.live) == (40.0, 15.0, False)


def test_one_slow_machine_does_not_make_its_kind_dear() -> None:
    costs = LearntCosts()
    seen = (("slow", 500.0), ("slow", 600.0), ("n1", 20.0), ("n2", 22.0))
    for i, (node, took) in enumerate(seen):
        costs.observe_report(job(f"j{i}"), "h200", attempt(1, took, node))

    assert costs.costs(job("b"), "h200").first_start_s == 22.0


def test_before_anything_was_seen_the_assumed_holds() -> None:
    costs = LearntCosts(lambda _: 77.0)

    assert costs.costs(job("a"), "h200").restart_s == 77.0


def test_pauses_are_fitted_by_what_was_sent() -> None:
    costs = LearntCosts()
    costs.observe_able(job("a"), 2.0)
    for sent in (0.0, 0.5, 1.0, 2.0):
        costs.observe_pause(job("a"), "h200", 0.1 + 0.4 * sent, sent, 5.0)

    learnt = costs.costs(job("b"), "h200")

    assert learnt.live
    assert (learnt.pause_s, learnt.pause_gb_s) == pytest.approx((0.1, 0.4))
    assert (learnt.prepare_s, learnt.state_gb) == (5.0, 2.0)
    assert not costs.costs(job("c", model="other"), "h200").live


def test_a_model_that_could_not_change_live_is_taken_to_restart_until_it_can() -> None:
    costs = LearntCosts()
    costs.observe_able(job("a"), 2.0)
    costs.observe_unable(job("a"))

    assert not costs.costs(job("b"), "h200").live

    costs.observe_able(job("c"), 2.0)

    assert costs.costs(job("b"), "h200").live


def test_what_was_measured_survives_a_restart() -> None:
    costs = LearntCosts()
    costs.observe_report(job("a"), "h200", attempt(1, 40.0))
    costs.observe_able(job("a"), 2.0)
    costs.observe_pause(job("a"), "h200", 0.9, 2.0, 5.0)

    again = LearntCosts()
    again.load(json.loads(json.dumps(costs.save())))

    assert again.costs(job("b"), "h200") == costs.costs(job("b"), "h200")
