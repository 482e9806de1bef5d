"""CASSINI (NSDI 2024): circles, scores and shifts of small cases, worked by hand."""

from __future__ import annotations

import pytest

import weft
from weft.core.knowledge.traffic import Traffic, TrafficPhase
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft_papers.cassini.circles import Circle, measure_circle
from weft_papers.cassini.compatibility import fit_link, has_loop, score_link, unite_shifts


def circle(period_ms: float, *arcs: tuple[float, float, float]) -> Circle:
    """Arcs are (begin, end, Gbit/s) in milliseconds."""
    timed = tuple((a / 1e3, (b - a) / 1e3, gbps) for a, b, gbps in arcs)
    return Circle(period_ms / 1e3, timed)


def test_two_equal_jobs_with_half_duty_interleave_completely() -> None:
    jobs = (circle(200, (100, 200, 40)), circle(200, (100, 200, 40)))

    fit = fit_link(jobs, 50.0)

    assert fit.unshifted == pytest.approx(0.70)
    assert fit.score == pytest.approx(1.0)
    # The smallest shift that removes every overlap is the one that leaves none at all.
    assert fit.shifts_s == pytest.approx((0.0, 0.100))


@pytest.mark.parametrize(("samples", "score"), [(360, 0.92), (72, 0.9222)])
def test_two_jobs_that_want_more_than_the_circle_overlap_by_a_tenth(
    samples: int, score: float
) -> None:
    jobs = (circle(100, (40, 100, 45)), circle(100, (50, 100, 45)))

    fit = fit_link(jobs, 50.0, samples)

    assert fit.unshifted == pytest.approx(0.60, abs=0.003)
    assert fit.score == pytest.approx(score, abs=1e-4)
    if samples == 360:
        assert score_link(jobs, (0.0, 0.040), 50.0, samples) == pytest.approx(fit.score)


def test_no_rotation_helps_where_the_repeats_always_meet() -> None:
    jobs = (circle(40, (20, 40, 40)), circle(60, (30, 60, 40)))

    fit = fit_link(jobs, 50.0, 120)
    scores = [score_link(jobs, (0.0, at / 1e3), 50.0, 120) for at in range(60)]

    assert measure_circle([0.040, 0.060]) == pytest.approx(0.120)
    assert fit.score == pytest.approx(0.85)
    assert scores == pytest.approx([0.85] * 60)


def test_short_phases_of_different_periods_meet_half_as_often() -> None:
    jobs = (circle(40, (0, 10, 40)), circle(60, (0, 15, 40)))

    fit = fit_link(jobs, 50.0, 120)

    assert fit.unshifted == pytest.approx(0.95)
    assert fit.score == pytest.approx(0.975)
    assert fit.shifts_s == pytest.approx((0.0, 0.005))


def test_three_jobs_find_room_for_each_other() -> None:
    jobs = (circle(100, (0, 30, 40)), circle(100, (0, 30, 40)), circle(50, (0, 20, 25)))

    fit = fit_link(jobs, 50.0, 100)

    assert fit.unshifted == pytest.approx(0.72)
    assert fit.score == pytest.approx(1.0)
    assert score_link(jobs, fit.shifts_s, 50.0, 100) == pytest.approx(1.0)
    assert score_link(jobs, (0.0, 0.050, 0.030), 50.0, 100) == pytest.approx(1.0)


def test_shifts_of_links_become_one_shift_a_job() -> None:
    periods = {"j1": 0.200, "j2": 0.200, "j3": 0.100}
    shifts = {"l1": {"j1": 0.0, "j2": 0.120}, "l2": {"j2": 0.030, "j3": 0.080}}

    assert not has_loop({link: tuple(jobs) for link, jobs in shifts.items()})
    assert unite_shifts(periods, shifts) == pytest.approx({"j1": 0.0, "j2": 0.120, "j3": 0.070})


HALF = Traffic(0.2, 0.5, 4.0, phases=(TrafficPhase(0.1, 0.1, 40.0),))


def completion_s(policy: str, cluster: str, jobs: int = 2) -> list[float]:
    """Of jobs of three GPUs for 1000 s that start together."""
    rows = [
        (Job(JobId(f"j{i}"), demand=Demand(3), traffic=HALF), Truth(1000.0)) for i in range(jobs)
    ]
    outcome = weft.simulate(Trace("two", tuple(rows)), policy, cluster).outcomes[policy][0]
    return [float(seconds) for seconds in outcome.per_job.jct_s]


def test_two_jobs_on_one_link_lose_by_chance_and_hardly_with_shifts() -> None:
    network = "3x2:a100/nic=50"  # both have one GPU on the second node, and share its card

    alone = completion_s("fifo", network, jobs=1)
    by_chance = completion_s("fifo", network)
    shifted = completion_s("cassini|fifo", network)

    assert alone == pytest.approx([1000.0], rel=0.01)
    # They overlap a quarter of the time on average: 8 Gbit/s of 50 too many then.
    assert all(1.08 < iteration_ms / 1000.0 < 1.2 for iteration_ms in by_chance)
    assert all(iteration_ms / 1000.0 < 1.025 for iteration_ms in shifted)


def test_without_a_network_the_same_jobs_end_as_under_the_host() -> None:
    assert completion_s("cassini|fifo", "3x2:a100") == completion_s("fifo", "3x2:a100")
