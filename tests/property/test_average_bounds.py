"""Bound, optimum and policies of drawn workloads that are small enough to know the optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.exact_schedule import (
    SHORTEST,
    Goal,
    best_with_stops,
    best_without_stops,
    slowdown,
    wait,
    whole_time,
)
from tests.examples import examples

import weft
from weft.bounds.average import BoundedJob, bound_average, bound_slowdown, bound_wait
from weft.bounds.market import Market
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth

POLICIES = ("fifo", "fifo:backfill=true", "sjf", "srtf", "las", "weft")
EXACT = 1e-9
UNIT_S = 60.0


@st.composite
def workloads(draw: Any, most: int, kinds: int = 2) -> tuple[list[BoundedJob], dict[str, int]]:
    """A few jobs in whole seconds: gangs, kinds of different speed, elastic and rigid."""
    gpus = {f"k{i}": draw(st.integers(1, 4)) for i in range(draw(st.integers(1, kinds)))}
    jobs = []
    for _ in range(draw(st.integers(1, most))):
        on = draw(st.lists(st.sampled_from(sorted(gpus)), min_size=1, unique=True))
        options = []
        for kind in on:
            size = draw(st.integers(1, gpus[kind]))
            options.append((kind, float(size), float(draw(st.integers(1, 3)))))
            if size < gpus[kind] and draw(st.booleans()):  # faster on more, in proportion or less
                options.append((kind, size + 1.0, float(draw(st.integers(1, 3)))))
        length = draw(st.sampled_from([seconds for _, _, seconds in options]))
        jobs.append(BoundedJob(float(draw(st.integers(0, 4))), tuple(options), length))
    return jobs, gpus


def least_sum(goal: Goal, jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> float:
    """The bound of a goal."""
    if goal is whole_time:
        return bound_average(jobs, gpus).best * len(jobs)
    if goal is wait:
        return bound_wait(jobs, gpus) * len(jobs)
    return bound_slowdown(jobs, gpus, SHORTEST) * len(jobs)


GOALS = (whole_time, wait, slowdown)


@given(workloads(most=4))
@examples(400)
def test_no_bound_is_above_the_best_schedule_with_stops(
    drawn: tuple[list[BoundedJob], dict[str, int]],
) -> None:
    jobs, gpus = drawn
    bound = bound_average(jobs, gpus)

    assert bound.best >= max(bound.alone, bound.srpt, bound.busy, bound.market) * (1.0 - EXACT)
    for goal in GOALS:
        assert least_sum(goal, jobs, gpus) <= best_with_stops(jobs, gpus, goal), goal


@given(workloads(most=8))
@examples(200)
def test_no_bound_is_above_the_best_schedule_without_stops(
    drawn: tuple[list[BoundedJob], dict[str, int]],
) -> None:
    jobs, gpus = drawn

    for goal in GOALS:
        assert least_sum(goal, jobs, gpus) <= best_without_stops(jobs, gpus, goal), goal


@given(workloads(most=5, kinds=1))
@examples(40)
def test_no_policy_is_below_the_best_schedule_nor_that_below_the_bound(
    drawn: tuple[list[BoundedJob], dict[str, int]],
) -> None:
    jobs, gpus = drawn
    rigid = [replace(job, options=job.options[:1]) for job in jobs]
    rigid.sort(key=lambda job: job.submitted)
    least = best_with_stops(rigid, gpus) / len(rigid)

    result = weft.compare(
        trace_of(rigid), POLICIES, f"1x{gpus['k0']}:k0", restart_cost=0.0, bound=True
    )

    bound_s = result.bound() * 3600.0 / UNIT_S
    assert bound_s <= least
    for policy in POLICIES:
        took = result.mean(policy, "avg_jct_h") * 3600.0 / UNIT_S
        assert took >= least * (1.0 - EXACT), policy
        assert result.mean(policy, "jct_over_bound") == pytest.approx(took / bound_s)
        waited = result.mean(policy, "avg_queue_h") * 3600.0 / UNIT_S
        assert waited >= best_with_stops(rigid, gpus, wait) / len(rigid) - EXACT, policy
        for felt in ("avg_queue_h", "short_queue_h", "slowdown_10s", "slowdown_10min"):
            assert result.mean(policy, felt) >= result.bound(felt) * (1.0 - EXACT), (policy, felt)
    assert result.bound("avg_queue_h") * 3600.0 / UNIT_S <= best_with_stops(rigid, gpus, wait)


def trace_of(jobs: Sequence[BoundedJob]) -> Trace:
    return Trace(
        "drawn",
        tuple(
            (
                Job(JobId(f"j{i}"), UNIT_S * job.submitted, Demand(int(job.options[0][1]))),
                Truth(UNIT_S * job.options[0][2]),
            )
            for i, job in enumerate(jobs)
        ),
    )


# ---- wrong bounds: each forgets something, and must be above the optimum of some drawn case


def worst_option(job: BoundedJob) -> BoundedJob:
    return replace(job, options=(max(job.options, key=lambda option: option[2]),))


def all_submitted_at_once(job: BoundedJob) -> BoundedJob:
    return replace(job, submitted=0.0)


def whole_cluster(job: BoundedJob) -> BoundedJob:
    return replace(job, options=tuple((kind, 4.0, seconds) for kind, _, seconds in job.options))


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("wrong", [worst_option, all_submitted_at_once, whole_cluster])
def test_a_wrong_bound_is_caught(wrong: Callable[[BoundedJob], BoundedJob], goal: Goal) -> None:
    assert any(
        least_sum(goal, [wrong(job) for job in jobs], gpus)
        > best_with_stops(jobs, gpus, goal) + EXACT
        for jobs, gpus in drawn_gangs()
    )


def test_a_bound_of_waits_that_forgets_slow_ways_to_run_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BoundedJob, "longest", BoundedJob.shortest)

    assert any(
        least_sum(wait, jobs, gpus) > best_with_stops(jobs, gpus, wait) + EXACT
        for jobs, gpus in drawn_gangs()
    )


def test_a_market_in_which_rent_is_not_paid_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Market._find_gains
    monkeypatch.setattr(
        Market,
        "_find_gains",
        lambda self, prices, ends: (
            look(self, prices, ends)[0] * 0.9,
            *look(self, prices, ends)[1:],
        ),
    )

    assert any(
        bound_average(jobs, gpus).market * len(jobs) > best_with_stops(jobs, gpus) + EXACT
        for jobs, gpus in drawn_gangs()
    )


def drawn_gangs() -> Iterator[tuple[list[BoundedJob], dict[str, int]]]:
    rng = np.random.default_rng(1)
    for _ in range(40):
        jobs = []
        for _ in range(4):
            ways = [("k0", float(rng.integers(1, 5)), float(rng.integers(1, 4))) for _ in range(2)]
            jobs.append(BoundedJob(float(rng.integers(0, 5)), tuple(ways), ways[0][2]))
        yield jobs, {"k0": 4}
