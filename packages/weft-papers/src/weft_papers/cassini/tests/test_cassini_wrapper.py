"""The wrapper that picks placements by the links jobs share, and shifts jobs against each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.knowledge.traffic import Traffic, TrafficPhase
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice, TimeShift
from weft.core.plan.about import About, Controls, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.pieces.wrap.tenants.reserve import Reserve
from weft.policies.fifo import Fifo
from weft_papers.cassini.circles import circle_of
from weft_papers.cassini.compatibility import score_link
from weft_papers.cassini.link_shifts import Crossing, Over, find_crossing, shift_jobs
from weft_papers.cassini.wrapper import Cassini, find_alternatives
from weft_papers.gandiva.policy import Gandiva
from weft_papers.hived.wrapper import Hived
from weft_papers.themis.policy import Themis

# Four racks of two nodes of one GPU: any two nodes of different racks meet others on uplinks.
RACKS = parse_cluster("8x1:a100/nic=50/rack=2:50")
HALF = Traffic(0.2, 0.5, 4.0, phases=(TrafficPhase(0.1, 0.1, 40.0),))
FULL = Traffic(0.2, 0.9, 9.0, phases=(TrafficPhase(0.02, 0.18, 50.0),))


def job(name: str, traffic: Traffic | None = HALF, gpus: int = 2) -> Job:
    return Job(JobId(name), demand=Demand(gpus), traffic=traffic)


def on(*nodes: int, shift: TimeShift | None = None) -> Allocation:
    slices = tuple(Slice(NodeId(f"a100-{node}"), (0,), 8.0, 64.0) for node in nodes)
    return Allocation(slices, time_shift=shift)


def view_with(cluster: Cluster, held: dict[str, Allocation], *waiting: Job) -> View:
    """Jobs that run on what they hold, and others that wait."""
    state = State(cluster)
    for submitted in (*map(job, held), *waiting):
        state.fold(0.0, Submitted(submitted))
    state.fold(0.0, Decided(1, {JobId(held_name): to for held_name, to in held.items()}))
    for name in held:
        state.fold(0.0, Started(JobId(name), 1))
    state.free.commit()
    return View(0.0, state.table, cluster, state.free, decision=1)


@dataclass(frozen=True)
class Says:
    """A policy that always gives the same plan."""

    plan: Plan
    ties: Ties = Ties.NODES

    @property
    def about(self) -> About:
        return About("says", "of this test", ties=self.ties)

    def decide(self, view: View) -> Plan:
        return self.plan


def test_two_jobs_on_one_uplink_begin_half_a_period_apart() -> None:
    view = view_with(RACKS, {}, job("a"), job("b"))
    wished = Plan({JobId("a"): on(0, 2), JobId("b"): on(1, 3)})

    plan = Cassini(Says(wished, Ties.NONE), headroom=0.0).decide(view)

    a, b = plan.changes[JobId("a")], plan.changes[JobId("b")]
    assert a == on(0, 2, shift=TimeShift(0.2))
    assert b is not None
    assert b.devices == on(1, 3).devices
    assert b.time_shift is not None
    assert (b.time_shift.period_s, b.time_shift.shift_s) == pytest.approx((0.2, 0.1))


def test_jobs_are_moved_to_where_they_share_nothing() -> None:
    view = view_with(RACKS, {}, job("a", FULL), job("b", FULL))
    wished = Plan({JobId("a"): on(0, 2), JobId("b"): on(1, 3)})

    plan = Cassini(Says(wished)).decide(view)

    held = view.after(plan)
    assert not find_crossing(view, held).shared
    assert all(to.time_shift is None for to in held.values())
    assert sorted(to.gpus for to in held.values()) == [2, 2]


def test_the_first_of_equal_placements_is_the_hosts_own() -> None:
    view = view_with(RACKS, {}, job("a"), job("b"))
    wished = Plan({JobId("a"): on(0, 2), JobId("b"): on(1, 3)})

    plan = Cassini(Says(wished), headroom=0.0).decide(view)

    # Half of the time each: they interleave completely where they are.
    assert {name: to.devices for name, to in plan.changes.items() if to} == {
        name: to.devices for name, to in wished.changes.items() if to
    }


def test_jobs_that_run_stay_and_the_first_of_them_keeps_its_beat() -> None:
    beat = TimeShift(0.2, 0.07)
    view = view_with(RACKS, {"a": on(0, 2, shift=beat)}, job("b"))

    plan = Cassini(Says(Plan({JobId("b"): on(1, 3)}), Ties.NONE), headroom=0.0).decide(view)

    (name,) = plan.changes
    to = plan.changes[name]
    assert to is not None
    assert (name, to.devices) == ("b", on(1, 3).devices)
    assert to.time_shift is not None
    assert to.time_shift.shift_s == pytest.approx(0.17)


def test_a_job_that_is_alone_again_loses_its_beat_and_nobody_restarts() -> None:
    view = view_with(RACKS, {"a": on(0, 2, shift=TimeShift(0.2, 0.05))})

    plan = Cassini(Says(Plan())).decide(view)

    assert plan.changes == {JobId("a"): on(0, 2)}
    assert Cassini(Says(Plan())).decide(view_with(RACKS, {"a": on(0, 2)})) == Plan()


def test_the_host_sees_jobs_without_their_beats() -> None:
    seen: list[Allocation | None] = []

    @dataclass(frozen=True)
    class Looks:
        about = About("looks", "of this test")

        def decide(self, view: View) -> Plan:
            seen.extend(view.table.allocations)
            return Plan()

    Cassini(Looks()).decide(view_with(RACKS, {"a": on(0, 2, shift=TimeShift(0.2, 0.05))}))

    assert seen == [on(0, 2)]


def ring_of_three() -> tuple[View, Plan]:
    """Three jobs between three racks, each pair of which meets on another uplink."""
    view = view_with(RACKS, {}, job("a"), job("b"), job("c"))
    return view, Plan({JobId("a"): on(0, 2), JobId("b"): on(3, 4), JobId("c"): on(5, 1)})


def test_links_make_up_the_score_of_a_placement_by_mean_least_or_what_all_lack() -> None:
    traffic = {"a": FULL, "b": FULL, "c": FULL, "d": HALF}
    circles = {JobId(name): circle_of(pattern) for name, pattern in traffic.items()}
    links = {"one": (JobId("a"), JobId("b")), "two": (JobId("c"), JobId("d"))}

    def score(over: Over, *names: str) -> float:
        shared = {name: links[name] for name in names}
        return shift_jobs(
            Crossing(shared, dict.fromkeys(links, 50.0), circles), {}, over=over
        ).score

    poor, fair = score("mean", "one"), score("mean", "two")
    assert poor < fair < 1.0
    assert score("mean", *links) == pytest.approx((poor + fair) / 2, abs=1e-5)
    assert score("least", *links) == pytest.approx(poor)
    assert score("total", *links) == pytest.approx(poor + fair - 1.0, abs=1e-5)


def test_where_all_placements_have_a_loop_the_first_is_kept_without_shifts() -> None:
    view, wished = ring_of_three()

    plan = Cassini(Says(wished, Ties.NONE)).decide(view)

    assert plan.changes == wished.changes


def test_a_loop_can_be_broken_at_the_link_that_needs_shifts_least() -> None:
    view, wished = ring_of_three()

    plan = Cassini(Says(wished, Ties.NONE), loops="break", headroom=0.0).decide(view)

    shifts = {name: to.time_shift for name, to in plan.changes.items() if to is not None}
    assert all(shift is not None for shift in shifts.values())
    crossing = find_crossing(view, view.after(plan))
    scores = [
        score_link(
            [crossing.circles[name] for name in names],
            [shift.shift_s for name in names if (shift := shifts[name]) is not None],
            50.0,
        )
        for names in crossing.shared.values()
    ]
    assert sorted(scores)[1:] == pytest.approx([1.0, 1.0])


def test_a_placement_with_a_loop_is_passed_over_for_one_without() -> None:
    view, wished = ring_of_three()

    held = view.after(Cassini(Says(wished), candidates=30).decide(view))

    assert not find_crossing(view, held).loops


def test_alternatives_keep_kinds_shapes_and_whoever_shares_devices() -> None:
    cluster = parse_cluster("4x4:a100/nic=50/rack=2:50+4x4:t4/nic=50")
    view = view_with(cluster, {}, job("a", gpus=6), job("b", gpus=1))
    wished = Plan(
        {
            JobId("a"): Allocation(
                (
                    Slice(NodeId("a100-0"), (0, 1, 2, 3), 32.0, 256.0),
                    Slice(NodeId("a100-1"), (0, 1), 16.0, 128.0),
                )
            ),
            JobId("b"): Allocation((Slice(NodeId("a100-1"), (2,), 8.0, 64.0),)),
        }
    )

    alternatives = find_alternatives(view, wished, 10, np.random.default_rng(0))

    assert alternatives[0] is wished
    assert len(alternatives) > 3
    for plan in alternatives:
        a, b = plan.changes[JobId("a")], plan.changes[JobId("b")]
        assert a is not None
        assert b is not None
        assert sorted(len(part.gpus) for part in a.slices) == [2, 4]
        assert b.gpus == 1
        assert cluster.kind_of(a) == cluster.kind_of(b) == "a100"


def test_without_links_or_traffic_it_changes_nothing() -> None:
    plain = view_with(parse_cluster("8x1:a100"), {}, job("a"))
    silent = view_with(RACKS, {}, job("a", None))

    for view in (plain, silent):
        assert Cassini(Fifo()).decide(view) == Fifo().decide(view)


def test_where_no_links_are_known_of_any_more_jobs_lose_their_beats() -> None:
    view = view_with(parse_cluster("8x1:a100"), {"a": on(0, 2, shift=TimeShift(0.2, 0.05))})

    assert Cassini(Says(Plan())).decide(view).changes == {JobId("a"): on(0, 2)}


def test_a_hundredth_of_an_iteration_is_what_jobs_wait_for_their_beat() -> None:
    view = view_with(RACKS, {}, job("a"), job("b"))
    wished = Plan({JobId("a"): on(0, 2), JobId("b"): on(1, 3)})

    held = view.after(Cassini(Says(wished, Ties.NONE)).decide(view))

    periods = [to.time_shift.period_s for to in held.values() if to.time_shift is not None]
    assert periods == pytest.approx([0.202, 0.202])


@pytest.mark.parametrize(("period_s", "together"), [(0.18, True), (0.17, False)])
def test_nobody_waits_long_for_a_beat_that_it_could_share(period_s: float, together: bool) -> None:
    # Half of each iteration is traffic: in step with 0.2 s they would never meet. To wait for that
    # makes 0.18 s a ninth longer, which pays, and 0.17 s by more than a job is asked to wait.
    other = Traffic(period_s, 0.5, 4.0, phases=(TrafficPhase(period_s / 2, period_s / 2, 40.0),))
    view = view_with(RACKS, {}, job("a"), job("b", other))
    wished = Plan({JobId("a"): on(0, 2), JobId("b"): on(1, 3)})

    plan = Cassini(Says(wished), candidates=1, headroom=0.0).decide(view)

    beats = [where.time_shift for where in plan.changes.values() if where is not None]
    periods = {round(beat.period_s, 6) for beat in beats if beat is not None}
    assert (periods == {0.2}) is together


def test_what_it_declares_is_the_hosts_and_that_it_shifts() -> None:
    assert Cassini(Fifo()).candidates == 10  # as published
    about = Cassini(Themis()).about

    assert about == replace(Themis.about, controls=Controls.COUNT | Controls.SHIFT)
    assert Gandiva().about.ties is Ties.NONE


def test_nodes_that_are_kept_for_others_stay_theirs() -> None:
    view = view_with(RACKS, {}, job("a", FULL, 3), job("b", FULL, 3))
    kept = {f"w{node}": f"a100-{node}:0" for node in (6, 7)}

    free = view.after(Cassini(Fifo()).decide(view))
    held = view.after(Cassini(Reserve(Fifo(), kept)).decide(view))

    # Between three racks the two meet on an uplink, on all four they need not.
    used = [
        {part.node for to in allocations.values() for part in to.slices}
        for allocations in (free, held)
    ]
    assert used[0] & {"a100-6", "a100-7"}
    assert used[1] == {f"a100-{node}" for node in range(6)}
    assert Cassini(Hived(Fifo(), {"x@node": 1.0})).about.ties is Ties.NONE


def test_its_decision_survives_the_log() -> None:
    view = view_with(RACKS, {}, job("a"), job("b"))
    wished = Plan({JobId("a"): on(0, 2), JobId("b"): on(1, 3)})
    plan = Cassini(Says(wished, Ties.NONE)).decide(view)

    assert decode(Plan, encode(plan)) == plan


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"headroom": -0.1}, {"headroom": 1.1}])
def test_cassini_refuses_numbers_that_mean_nothing(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        Cassini(Fifo(), **wrong)  # type: ignore[arg-type]
