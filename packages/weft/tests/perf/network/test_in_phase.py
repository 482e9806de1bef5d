"""Iterations of jobs that share links, with and without time shifts."""

from __future__ import annotations

from statistics import fmean

import pytest

from weft.core.knowledge.traffic import Traffic, TrafficPhase
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice, TimeShift
from weft.core.model.topology import Uplink
from weft.core.protocols import Resident
from weft.perf.network.in_phase import InPhase, Sender, iteration_seconds, simulate_iterations

LINK = Uplink("rack", 50.0)
# Half of an iteration of 200 ms it sends at 40 Gbit/s.
HALF = Traffic(0.2, 0.5, 4.0, phases=(TrafficPhase(0.1, 0.1, 40.0),))


def resident(name: str, traffic: Traffic = HALF, shift: float | None = None) -> Resident:
    beat = None if shift is None else TimeShift(1.01 * traffic.iteration_s, shift)
    on = Allocation((Slice(NodeId("a"), (0,)), Slice(NodeId("b"), (0,))), time_shift=beat)
    return Resident(Job(JobId(name), traffic=traffic), on, "a100")


def test_a_job_alone_takes_its_iteration() -> None:
    assert fmean(iteration_seconds(resident("a"), {LINK: []})) == pytest.approx(0.2, rel=0.01)


def test_two_jobs_half_a_period_apart_hardly_notice_each_other() -> None:
    apart = iteration_seconds(resident("a", shift=0.0), {LINK: [resident("b", shift=0.1)]})
    in_step = iteration_seconds(resident("a", shift=0.0), {LINK: [resident("b", shift=0.0)]})
    by_chance = iteration_seconds(resident("a"), {LINK: [resident("b")]})

    assert fmean(apart) == pytest.approx(0.2, rel=0.02)
    # 4 Gbit each at half of 50 Gbit/s take 160 ms.
    assert fmean(in_step) > 1.2 * fmean(apart)
    assert fmean(apart) < fmean(by_chance) < 0.261


def test_a_link_too_narrow_for_one_job_slows_it_alone() -> None:
    narrow = Uplink("rack", 20.0)

    assert fmean(iteration_seconds(resident("a"), {narrow: []})) == pytest.approx(0.3, rel=0.01)


def test_the_bandwidth_told_gives_the_mean_iteration() -> None:
    mine, crossing = resident("a", shift=0.0), {LINK: [resident("b", shift=0.0)]}

    gb_s = InPhase().gb_s(mine, crossing)

    assert HALF.seconds_at(gb_s) == pytest.approx(fmean(iteration_seconds(mine, crossing)))


def test_rates_are_max_min_fair_over_several_links() -> None:
    """The one on both links is held to its part of the narrow one; the wide one has the rest."""
    busy = Traffic(1.0, 1.0, 40.0, phases=(TrafficPhase(0.0, 1.0, 40.0),))
    senders = [Sender(busy, None, (0, 1)), Sender(busy, None, (0,)), Sender(busy, None, (1,))]

    both, narrow, wide = (
        40.0 / fmean(seconds) for seconds in simulate_iterations(senders, (20.0, 45.0))
    )

    assert (both, narrow) == pytest.approx((10.0, 10.0), rel=0.02)
    assert wide == pytest.approx(35.0, rel=0.05)


def test_the_same_jobs_are_asked_about_in_any_order() -> None:
    a, b = (
        resident("a"),
        resident("b", Traffic(0.3, 0.4, 5.0, phases=(TrafficPhase(0.1, 0.12, 41.0),))),
    )

    first = iteration_seconds(a, {LINK: [b]})

    assert iteration_seconds(a, {LINK: [b]}) == first
    assert iteration_seconds(b, {LINK: [a]}) != first
