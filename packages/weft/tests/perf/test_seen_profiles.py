"""What is seen of a job that says nothing is what policies that share devices believe of it."""

from __future__ import annotations

import pytest

from weft.core.events.event import Observed, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.programs import can_wait
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch, Software, SoftwareKind
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.formulas.sharing import lockstep
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


def test_where_allocations_wait_a_job_counts_with_what_it_holds_all_the_time() -> None:
    fears, waits = Colocated(profile_of), Colocated(profile_of, waits=can_wait)
    image = Launch(("train",), software=Software(SoftwareKind.IMAGE, "i"))
    for job in (STRANGER, Job(JobId("i"), launch=image)):
        for held_gb, peak_gb, steps in ((0.5, 0.5, 0.0), (1.5, 2.0, 1.0), (46.0, 46.0, 300.0)):
            report = Report(mem_gb=peak_gb, held_gb=held_gb, sm=0.35, steps=steps, step_s=0.01)
            fears.observe(job, "h200", report)
            waits.observe(job, "h200", report)

    assert fears.profile(STRANGER).mem_gb == 46.0
    assert waits.profile(STRANGER).mem_gb == 1.5
    assert waits.profile(job).mem_gb == 46.0  # nothing of ours is loaded in its container


def test_what_a_job_told_of_itself_holds() -> None:
    job = Job(JobId("t"), hints={"gpu_util": 80.0, "gmem_util": 40.0, "gmem_mib": 4_000.0})
    believed = Colocated(profile_of)
    before = believed.profile(job)

    believed.observe(job, "h200", Report(mem_gb=9.0, sm=0.1, steps=9.0, step_s=1.0))

    assert believed.profile(job) == before


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


def test_waiting_for_data_tells_the_stages_of_a_step() -> None:
    believed = Colocated(profile_of)

    believed.observe(STRANGER, "h200", Report(mem_gb=1.0, steps=40.0, step_s=0.1, data_s=0.08))

    profile = believed.profile(STRANGER)
    assert profile.stages == pytest.approx((0.08, 0.02, 0.0))
    assert (profile.gpu_use, profile.cpu_part) == pytest.approx((0.2, 0.8))


def test_what_a_program_did_is_known_of_its_next_run() -> None:
    believed = Colocated(profile_of)
    first, second = (Job(JobId(n), launch=Launch(("python", "t.py", n))) for n in ("1", "2"))
    believed.observe(first, "h200", Report(mem_gb=2.0, sm=0.35, steps=40.0, step_s=0.01))

    believed.forget(first)

    other = Colocated(profile_of)
    other.load(believed.save())
    assert other.profile(second).gpu_use == 0.35
    assert other.profile(Job(JobId("3"), launch=Launch(("python", "u.py")))).gpu_use == 1.0


@pytest.mark.parametrize("discipline", ["lockstep", "work-conserving"])
def test_muri_groups_strangers_by_the_stages_that_were_measured(discipline: str) -> None:
    knowledge = Knowledge(colocation=Colocated(profile_of))
    policy = build("policy", f"muri:known=false,discipline={discipline}")
    scheduler = Scheduler(policy, parse_cluster("1x1:h200"), knowledge=knowledge)
    jobs = [Job(JobId(name), launch=Launch(("python", f"{name}.py"))) for name in ("io", "gpu")]
    for at, (job, data_s) in enumerate(zip(jobs, (0.09, 0.001), strict=True)):
        report = Report(mem_gb=2.0, steps=9.0, step_s=0.1, data_s=data_s)
        knowledge.observe(job, "h200", report)
        scheduler.step(float(at), [Submitted(job)])

    terms = [on.sharing for on in scheduler.state.table.allocations if on is not None]

    assert [str(term.discipline) for term in terms] == [discipline] * 2
    assert len({term.phase for term in terms}) == (2 if discipline == "lockstep" else 1)


def test_stages_told_in_four_and_measured_in_three_make_one_period() -> None:
    stated, measured = (0.01, 0.01, 0.07, 0.01), (0.08, 0.02, 0.0)

    best = lockstep.best((stated, measured)), lockstep.best((measured, stated))

    assert 0.1 <= best[0].seconds == best[1].seconds <= 0.2
