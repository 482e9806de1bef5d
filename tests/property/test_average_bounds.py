"""Bound, optimum and policies of drawn workloads that are small enough to know the optimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.exact_schedule import best_with_stops, best_without_stops
from tests.examples import examples

import weft
from weft.bounds.average import BoundedJob, bound_average
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
        jobs.append(BoundedJob(float(draw(st.integers(0, 4))), tuple(options)))
    return jobs, gpus


@given(workloads(most=4))
@examples(400)
def test_no_bound_is_above_the_best_schedule_with_stops(
    drawn: tuple[list[BoundedJob], dict[str, int]],
) -> None:
    jobs, gpus = drawn
    bound = bound_average(jobs, gpus)

    assert bound.best >= max(bound.alone, bound.srpt, bound.busy) * (1.0 - EXACT)
    assert bound.best * len(jobs) <= best_with_stops(jobs, gpus)


@given(workloads(most=8))
@examples(200)
def test_no_bound_is_above_the_best_schedule_without_stops(
    drawn: tuple[list[BoundedJob], dict[str, int]],
) -> None:
    jobs, gpus = drawn

    assert bound_average(jobs, gpus).best * len(jobs) <= best_without_stops(jobs, gpus)


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


@pytest.mark.parametrize("wrong", [worst_option, all_submitted_at_once, whole_cluster])
def test_a_wrong_bound_is_caught(wrong: Callable[[BoundedJob], BoundedJob]) -> None:
    gpus = {"k0": 4}
    rng = np.random.default_rng(1)

    def is_caught() -> bool:
        jobs = [
            BoundedJob(
                float(rng.integers(0, 5)),
                tuple(
                    ("k0", float(rng.integers(1, 5)), float(rng.integers(1, 4))) for _ in range(2)
                ),
            )
            for _ in range(4)
        ]
        planted = bound_average([wrong(job) for job in jobs], gpus).best
        return planted * len(jobs) > best_with_stops(jobs, gpus) + EXACT

    assert any(is_caught() for _ in range(40))
