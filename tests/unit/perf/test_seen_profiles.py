"""What is seen of a job that says nothing is what policies that share devices believe of it."""

from __future__ import annotations

import pytest

from weft.core.events.event import Observed, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Job, JobId
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of, unordered

STRANGER = Job(JobId("s"))


def test_an_unknown_job_is_taken_to_be_never_idle_until_it_was_seen() -> None:
    believed = Colocated(profile_of)
    before = believed.profile(STRANGER)

    believed.observe(STRANGER, "h200", Report(mem_gb=2.0, sm=0.35, steps=40.0, step_s=0.01))

    after = believed.profile(STRANGER)
    assert (before.gpu_use, before.mem_gb) == (1.0, 0.0)
    assert (after.gpu_use, after.mem_gb, after.step_s) == (0.35, 2.0, 0.01)


def test_what_is_seen_before_the_first_step_says_nothing_of_how_busy_it_will_be() -> None:
    believed = Colocated(profile_of)

    believed.observe(STRANGER, "h200", Report(mem_gb=0.5, sm=0.01))

    assert believed.profile(STRANGER).gpu_use == 1.0


def test_what_a_job_told_of_itself_holds() -> None:
    told = Job(JobId("t"), hints={"gpu_util": 80.0, "gmem_util": 40.0, "gmem_mib": 4_000.0})
    believed = Colocated(profile_of)
    before = believed.profile(told)

    believed.observe(told, "h200", Report(mem_gb=9.0, sm=0.1, steps=9.0, step_s=1.0))

    assert believed.profile(told) == before


def test_what_was_seen_is_saved_and_loaded() -> None:
    believed, other = Colocated(profile_of), Colocated(profile_of)
    believed.observe(STRANGER, "h200", Report(mem_gb=2.0, sm=0.35, steps=40.0, step_s=0.01))

    other.load(believed.save())

    assert other.profile(STRANGER) == believed.profile(STRANGER)


@pytest.mark.parametrize(("seen", "joins"), [(False, False), (True, True)])
def test_a_policy_that_shares_by_use_joins_a_stranger_once_it_was_seen(
    *, seen: bool, joins: bool
) -> None:
    knowledge = Knowledge(colocation=Colocated(profile_of, unordered("mps")))
    policy = build("policy", "iadeep:tune=false,residents=4")
    scheduler = Scheduler(policy, parse_cluster("1x1:h200"), knowledge=knowledge)
    scheduler.step(0.0, [Submitted(STRANGER)])
    scheduler.step(1.0, [Started(STRANGER.id, 1)])
    if seen:
        report = Report(mem_gb=2.0, sm=0.3, steps=40.0, step_s=0.01)
        scheduler.step(5.0, [Reported(STRANGER.id, 1, report)])

    scheduler.step(60.0, [Submitted(Job(JobId("second")))])

    assert (scheduler.state.table.allocations[1] is not None) == joins


def test_a_measured_pace_reaches_policies_that_judge_by_it() -> None:
    knowledge = Knowledge(colocation=Colocated(profile_of))
    scheduler = Scheduler(build("policy", "fifo"), parse_cluster("1x1:h200"), knowledge=knowledge)
    scheduler.step(0.0, [Submitted(STRANGER)])
    scheduler.step(1.0, [Started(STRANGER.id, 1)])

    scheduler.step(2.0, [Observed(STRANGER.id, 1, pace=0.6)])

    assert knowledge.colocation is not None
    assert knowledge.colocation.pace(STRANGER) == 0.6
