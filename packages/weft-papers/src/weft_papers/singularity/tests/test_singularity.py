"""Singularity: splicing, GPU fractions and checkpoints by hand, and what must always hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.seeds import seeds

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Event, Finished, Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Tier
from weft.core.model.trace import Trace, Truth
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.state import State
from weft.sim.driver import Simulation
from weft.sim.faults import Faults
from weft.sim.physics import Physics
from weft.testing import view_of
from weft_papers.singularity.policy import (
    Singularity,
    SingularityMemory,
    add_point,
    gpu_fraction,
    window_fractions,
)
from weft_papers.singularity.sizes import Claim, choose_sizes, tier_of
from weft_papers.singularity.sizes import ServiceTier as Sla
from weft_papers.singularity.speeds import Splicing
from weft_papers.singularity.splicing import CheckpointCost, Iteration, find_legal_sizes

MS = Iteration(compute=200.0, allreduce=30.0, update=20.0, switch=2.0)


# ---- the worked examples


def test_ranks_that_take_turns_share_updates_and_all_reduces() -> None:
    assert MS.seconds(1, 30.0) == 250.0
    assert MS.seconds(2, 24.0) == 446.0
    assert MS.seconds(4, 16.0) == 842.0
    assert pytest.approx(0.5605, abs=1e-4) == 250.0 / 446.0
    assert pytest.approx(0.2969, abs=1e-4) == 250.0 / 842.0


@pytest.mark.parametrize(
    ("devices", "speed"),
    [
        (0, 0.0),
        (1, 1 / 6.536),
        (2, 1 / 3.37257),
        (3, 1 / 2.58743),
        (4, 1 / 1.79086),
        (8, 1),
        (9, 1),
    ],
)
def test_the_speed_of_eight_ranks_on_fewer_devices(devices: int, speed: float) -> None:
    # On 2: 4 x 0.8, a ring of 2 instead of 8 (0.12 x 1/2 / 7/8), 0.08, and 3 switches of 0.008.
    assert Iteration().speed(devices, 8) == pytest.approx(speed, rel=1e-5)


def test_without_squashing_every_rank_updates() -> None:
    plain = replace(MS, squash=False)

    assert (plain.seconds(2, 24.0), plain.seconds(4, 16.0)) == (466.0, 902.0)


def test_without_shared_buffers_every_turn_copies_them_out_and_in() -> None:
    assert replace(MS, swap=10.0).seconds(4, 16.0) == 842.0 + 2 * 3 * 10.0


def test_the_gpu_fraction_of_an_hour() -> None:
    points = ((0.0, 8.0), (1800.0, 4.0), (2700.0, 0.0))

    fraction = gpu_fraction(points, 8, 0.0, 3600.0)

    assert fraction == 0.625
    assert 0.70 - fraction == pytest.approx(0.075)
    assert 0.95 - fraction == pytest.approx(0.325)


def test_more_than_was_asked_for_does_not_count() -> None:
    assert gpu_fraction(((0.0, 16.0), (50.0, 0.0)), 8, 0.0, 100.0) == 0.5


def test_windows_begin_at_the_arrival_and_the_last_is_cut() -> None:
    points = ((100.0, 0.0), (150.0, 4.0))

    assert window_fractions(points, 4, 100.0, 250.0) == [0.5, 1.0]


def test_points_before_the_window_are_forgotten_but_for_the_last() -> None:
    points = ((0.0, 1.0), (10.0, 2.0), (20.0, 4.0))

    assert add_point(points, 30.0, 8.0, oldest=15.0) == ((10.0, 2.0), (20.0, 4.0), (30.0, 8.0))
    assert add_point(points, 30.0, 4.0, oldest=0.0) == points


def test_a_checkpoint_holds_equal_content_once() -> None:
    saved = CheckpointCost()

    assert saved.size_gb(8) == 25.5
    assert saved.save_s(8) == 12.75
    assert saved.move_s(8) == 5.0 + 2 * 12.75 + 20.0
    # Two nodes write half each.
    assert saved.save_s(8, nodes=2) == 12.75 / 2
    assert saved.move_s(8, nodes=2) == 5.0 + 12.75 + 20.0


def test_only_replicas_of_one_shard_share_devices() -> None:
    assert find_legal_sizes(12, 2 * 2) == (4, 12)
    assert find_legal_sizes(8, 1) == (1, 2, 4, 8)
    assert find_legal_sizes(12, 5) == (6, 12)
    assert find_legal_sizes(7, 7) == (7,)


def test_every_rank_stops_after_the_same_collective() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        ordered_at = rng.integers(0, 20, int(rng.integers(2, 9)))

        stopped = cut(ordered_at.tolist())

        assert len(set(stopped)) == 1
        assert stopped[0] <= int(ordered_at.min()) + 3


def cut(ordered_at: list[int]) -> list[int]:
    """The collective after which each rank stops, told to at these; two sums go before each."""
    synchronous = [False] * len(ordered_at)
    step = 0
    while True:
        need = sum(step >= at for at in ordered_at)
        ack = sum(synchronous)
        if ack == len(ordered_at):
            return [step] * ack
        if need:
            synchronous = [True] * len(ordered_at)
        step += 1


# ---- sizes


def test_tiers_follow_from_priorities() -> None:
    assert tier_of(Job(JobId("a"), priority=1.0)) is Sla.PREMIUM
    assert tier_of(Job(JobId("a"))) is Sla.STANDARD
    assert tier_of(Job(JobId("a"), priority=-1.0)) is Sla.BASIC
    assert tier_of(Job(JobId("a"), tier=Tier.OPPORTUNISTIC)) is Sla.BASIC


def claim(
    row: int, tier: Sla, deficit: float = 0.0, *, held: int = 0, urgent: bool = False
) -> Claim:
    return Claim(row, tier, deficit, (1, 2, 4, 8), ("v100",), held, urgent=urgent)


def sizes(*claims: Claim, room: int) -> dict[int, int]:
    chosen = choose_sizes(claims, {"v100": room}, Iteration())
    return {row: size for row, (_, size) in chosen.items()}


def test_basic_jobs_shrink_first_and_standard_ones_in_surplus_next() -> None:
    premium = claim(0, Sla.PREMIUM, 0.95, urgent=True)
    standard = claim(1, Sla.STANDARD, -0.3, held=8)
    basic = claim(2, Sla.BASIC, held=8)

    assert sizes(premium, standard, basic, room=16) == {0: 8, 1: 4, 2: 4}
    assert sizes(premium, standard, basic, room=10) == {0: 8, 1: 1, 2: 1}
    assert sizes(premium, standard, basic, room=9) == {0: 8, 1: 1}


def test_everybody_has_its_least_before_anybody_in_surplus_has_more() -> None:
    by_row = sizes(*(claim(i, Sla.STANDARD, -0.3) for i in range(3)), room=8)

    assert by_row == {0: 4, 1: 2, 2: 2}


def test_devices_go_to_the_steps_that_gain_most_for_each_device() -> None:
    # From 1 to 8 brings most in all, 6.8 of a device's work for seven more; 1 to 2 brings 1.15 for
    # one, and 2 to 4 brings 2.1 for two.
    assert sizes(claim(0, Sla.BASIC), claim(1, Sla.BASIC), room=9) == {0: 4, 1: 4}


def test_who_has_its_full_size_keeps_it_before_others_that_lack_more() -> None:
    waiting, full = (replace(claim(i, Sla.PREMIUM, urgent=True), sizes=(8,)) for i in range(2))

    assert sizes(replace(waiting, deficit=0.9), replace(full, held=8), room=8) == {1: 8}


def test_who_may_not_be_stopped_keeps_what_it_holds() -> None:
    firm = replace(claim(0, Sla.BASIC, held=3), firm=True)

    assert sizes(firm, claim(1, Sla.PREMIUM, 0.9, urgent=True), room=8) == {0: 3, 1: 4}


def test_a_new_job_goes_where_most_is_left_of_its_kinds() -> None:
    both = replace(claim(0, Sla.BASIC), kinds=("a", "b"))

    assert choose_sizes([both], {"a": 2, "b": 5, "c": 9}, Iteration()) == {0: ("b", 4)}


def test_who_has_devices_keeps_them_before_others_of_its_tier_get_theirs() -> None:
    holds, waits = claim(1, Sla.BASIC, held=8), claim(0, Sla.BASIC)

    assert sizes(waits, replace(holds, sizes=(8,)), room=8) == {1: 8}
    assert sizes(waits, holds, room=9) == {0: 1, 1: 8}


def test_who_wants_kinds_that_are_away_waits_and_others_are_served() -> None:
    """All nodes of a kind may be drained."""
    away = replace(claim(0, Sla.PREMIUM, 0.95, urgent=True), kinds=())

    assert sizes(away, claim(1, Sla.BASIC), room=8) == {1: 8}


def test_no_device_is_idle_that_somebody_can_use() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        drawn = [
            claim(
                i,
                Sla(int(rng.integers(3))),
                float(rng.uniform(-0.3, 0.9)),
                held=int(rng.choice([0, 1, 2, 4, 8])),
                urgent=bool(rng.random() < 0.5),
            )
            for i in range(int(rng.integers(1, 8)))
        ]
        room = int(rng.integers(1, 30))

        by_row = sizes(*drawn, room=room)

        left = room - sum(by_row.values())
        for asked in drawn:
            larger = [size for size in asked.sizes if size > by_row.get(asked.row, 0)]
            assert not larger or larger[0] - by_row.get(asked.row, 0) > left


# ---- the policy


def job(name: str, gpus: int, priority: float = 0.0, at: float = 0.0, least: int = 1) -> Job:
    return Job(JobId(name), at, Demand(gpus, min=least, max=gpus), priority=priority)


def held_after(view: View, plan: Plan) -> dict[str, int]:
    return {name: on.gpus for name, on in view.after(plan).items()}


def test_a_premium_job_takes_what_basic_ones_hold() -> None:
    view = view_of("1x8:v100", job("basic", 8, -1.0), job("premium", 8, 1.0))

    assert held_after(view, Singularity().decide(view)) == {"premium": 8}


def test_a_gang_of_a_node_is_made_room_for_by_one_cheap_move() -> None:
    first = [job("small-0", 2, least=2), job("large-0", 4, least=4), job("large-1", 4, least=4)]
    scheduler = Scheduler(Singularity(), parse_cluster("2x8:v100"), knowledge=Knowledge())
    # Two nodes of 8 with 6 free devices, 4 and 2: a gang of 6 fits on neither.
    submitted: list[Event] = [Submitted(traced_job) for traced_job in first]
    scheduler.step(0.0, submitted)
    free = sorted(scheduler.state.free.on(i) for i in range(2))
    assert free == [0, 6] or free == [2, 4]
    scheduler.step(4000.0, [Submitted(job("gang", 6, 1.0, 4000.0, least=6))])

    on = scheduler.view(4000.0).held()
    assert len(on[JobId("gang")].slices) == 1
    assert all(len(held.slices) == 1 for held in on.values())


def simulate(
    trace: Trace, faults: Faults | None = None
) -> tuple[Physics, list[tuple[float, Event]]]:
    cluster = parse_cluster("2x8:v100")
    physics = Physics(trace, Splicing())
    log: list[tuple[float, Event]] = []
    scheduler = Scheduler(
        Singularity(), cluster, knowledge=Knowledge(), journal=lambda at, e: log.append((at, e))
    )
    Simulation(scheduler, physics, cluster, faults=faults).run()
    return physics, log


def draw(seed: int, count: int = 30) -> Trace:
    rng = np.random.default_rng(seed)
    pairs, at = [], 0.0
    for i in range(count):
        at += float(rng.exponential(500.0))
        gpus = int(rng.choice([1, 2, 4, 8, 12]))
        least = 4 if gpus == 12 else 1
        drawn = job(f"j{i}", gpus, float(rng.choice([-1, 0, 1])), at, least)
        pairs.append((drawn, Truth(float(rng.lognormal(7.0, 1.0)))))
    return Trace("drawn", tuple(pairs))


@pytest.mark.parametrize("seed", seeds(4))
def test_no_work_is_lost_and_higher_tiers_hold_what_they_can_use(seed: int) -> None:
    trace = draw(seed)

    physics, log = simulate(trace)

    jobs = {traced_job.id: traced_job for traced_job, _ in trace}
    held: dict[JobId, Allocation] = {}
    active: set[JobId] = set()
    for _, event in log:
        match event:
            case Submitted(submitted):
                active.add(submitted.id)
            case Finished(name):
                active.discard(name)
                held.pop(name)
            case Decided(_, changes):
                for name, to in changes.items():
                    held.pop(name, None)
                    if to is not None:
                        held[name] = to
                        assert to.gpus in find_legal_sizes(
                            jobs[name].demand.gpus, jobs[name].demand.min
                        )
                check_tiers(jobs, active, held)
    assert physics.lost_s.sum() == 0.0
    assert not np.isnan(physics.ended_at).any()


def check_tiers(jobs: dict[JobId, Job], active: set[JobId], held: dict[JobId, Allocation]) -> None:
    """No premium job is short of devices that basic ones hold, or nobody does."""
    basic = sum(on.gpus for name, on in held.items() if tier_of(jobs[name]) is Sla.BASIC)
    idle = 16 - sum(on.gpus for on in held.values())
    assert idle >= 0
    for name in active:
        has = held[name].gpus if name in held else 0
        larger = [
            s for s in find_legal_sizes(jobs[name].demand.gpus, jobs[name].demand.min) if s > has
        ]
        if larger:
            assert larger[0] - has > idle, f"{name} could use idle devices"
            if tier_of(jobs[name]) is Sla.PREMIUM:
                assert larger[0] - has > idle + basic, f"{name} is shrunk for basic jobs"


def test_work_is_lost_by_failures_alone_and_at_most_half_an_hour_of_it() -> None:
    physics, log = simulate(draw(0), Faults(node_mtbf_h=1.0, repair_h=0.2))

    lost = physics.lost_s.sum()
    runs = sum(type(event).__name__ == "NodeDown" for _, event in log)
    assert 0.0 < lost <= 1800.0 * runs * 16


def test_progress_never_falls() -> None:
    physics, _ = simulate(draw(1))

    ends = sorted((run.seq, run.start, run.end) for run in physics.runs)
    assert all(a[0] != b[0] or a[2] <= b[1] + 1e-6 for a, b in pairwise(ends))
    assert (physics.ran_s >= physics.length * 0.999).all()


def test_what_is_remembered_is_no_longer_than_the_window() -> None:
    view = view_of("1x8:v100", job("a", 8), now=10_000.0)
    old = SingularityMemory(
        {JobId("a"): tuple((float(t), float(t % 2)) for t in range(0, 9000, 100))}
    )

    memory = Singularity().decide(replace(view, memory=old)).memory

    assert isinstance(memory, SingularityMemory)
    assert len(memory.held[JobId("a")]) <= 40


def test_a_job_has_held_nothing_since_it_came_and_what_it_holds_is_remembered() -> None:
    view = view_of("1x8:v100", job("a", 8))

    first = Singularity().decide(replace(view, now=100.0)).memory

    assert first == SingularityMemory({JobId("a"): ((0.0, 0.0), (100.0, 8.0))})


def test_of_two_standard_jobs_the_one_that_lacks_more_runs() -> None:
    # Both waited for the last half hour; a held all it asked for in the half hour before.
    view = view_of("1x8:v100", job("a", 8, least=8), job("b", 8, least=8))
    memory = SingularityMemory({JobId("a"): ((0.0, 8.0), (1800.0, 0.0)), JobId("b"): ((0.0, 0.0),)})

    plan = Singularity().decide(replace(view, now=3600.0, memory=memory))

    assert held_after(view, plan) == {"b": 8}


def held_for(*points: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    return points


@pytest.mark.parametrize(
    ("points", "now", "submitted", "expected"),
    [
        # Asks for 8, has 4, and is at 0.75 or 0.85 of the hour: below 0.8 it gets all at once.
        (held_for((0, 8), (1800, 4)), 3600, 0, {"s": 8}),
        (held_for((0, 8), (2520, 4)), 3600, 0, {"s": 4, "o": 4}),
        # It has all 8 and keeps them until it had them for the whole hour, or since it came.
        (held_for((0, 0), (180, 8)), 3600, 0, {"s": 8}),
        (held_for((0, 8)), 3600, 0, {"o": 4}),
        (held_for((3000, 8)), 3600, 3000, {"o": 4}),
        (held_for((0, 0), (1000, 8)), 7200, 0, {"o": 4}),
        (held_for((0, 0), (3700, 8)), 7200, 0, {"s": 8}),
    ],
)
def test_a_standard_job_is_safe_a_tenth_above_its_target(
    points: tuple[tuple[float, float], ...], now: float, submitted: float, expected: dict[str, int]
) -> None:
    state = State(parse_cluster("1x8:v100"))
    gpus = int(points[-1][1])
    jobs = [job("s", 8, at=submitted, least=8 if gpus == 8 else 1), job("o", 4, at=submitted)]
    holds = {"s": (1 << gpus) - 1, "o": 0xF0 if gpus == 4 else 0}
    for asked in jobs:
        state.fold(asked.submitted, Submitted(asked))
    for name, mask in holds.items():
        if mask:
            on = Allocation((state.free.slice_of(0, mask),))
            state.fold(submitted, Decided(1, {JobId(name): on}))
            state.fold(submitted, Started(JobId(name), 1))
    had = held_for((submitted, 4.0)) if holds["o"] else held_for((submitted, 0.0))
    memory = SingularityMemory({JobId("s"): points, JobId("o"): had})
    view = View(now, state.table, state.cluster, state.free, Knowledge(), memory=memory)

    assert held_after(view, Singularity().decide(view)) == expected


@pytest.mark.parametrize(("ago", "moves"), [(1799.0, 0), (1800.0, 1)])
def test_a_job_rests_for_half_an_hour_after_it_was_moved_for_others(ago: float, moves: int) -> None:
    # Two nodes of 8 with 6 and 5 free devices: the job of two would have to move again.
    state = State(parse_cluster("2x8:v100"))
    for node, asked in enumerate((job("two", 2, least=2), job("three", 3, least=3))):
        state.fold(0.0, Submitted(asked))
        on = Allocation((state.free.slice(node, asked.demand.gpus),))
        state.fold(0.0, Decided(1, {asked.id: on}))
        state.fold(0.0, Started(asked.id, 1))
    state.fold(4000.0, Submitted(job("gang", 8, 1.0, 4000.0, least=8)))
    memory = SingularityMemory(moved={JobId("two"): 4000.0 - ago, JobId("three"): 4000.0 - 1.0})
    view = View(4000.0, state.table, state.cluster, state.free, Knowledge(), memory=memory)

    plan = Singularity().decide(view)

    gang = plan.changes[JobId("gang")]
    assert gang is not None
    assert len(gang.slices) == 2 - moves
    assert (JobId("two") in plan.changes) == bool(moves)
    assert isinstance(plan.memory, SingularityMemory)
    assert plan.memory.moved[JobId("two")] == (4000.0 if moves else 4000.0 - ago)


def test_a_job_grows_where_it_is_though_another_node_would_fit_better() -> None:
    state = State(parse_cluster("2x8:v100"))
    for node, asked in enumerate((job("other", 4, least=4), job("grows", 4))):
        state.fold(0.0, Submitted(asked))
        on = Allocation((state.free.slice(node, 2 if node else 4),))
        state.fold(0.0, Decided(1, {asked.id: on}))
        state.fold(0.0, Started(asked.id, 1))
    view = View(4000.0, state.table, state.cluster, state.free, Knowledge())

    on = view.after(Singularity().decide(view))[JobId("grows")]

    assert [(part.node, len(part.gpus)) for part in on.slices] == [(state.cluster.nodes[1].id, 4)]


def test_a_move_between_nodes_counts_the_nodes_of_its_ranks() -> None:
    splicing = Splicing()
    gang = Job(JobId("gang"), demand=Demand(12))

    assert splicing.node_gpus == 8
    assert splicing.restart(gang, first=True) == 0.0
    assert splicing.restart(gang, first=False) == splicing.checkpoint.move_s(12, 2)


def test_guarantees_are_looked_at_again_while_somebody_lacks_something() -> None:
    short, served = view_of("1x8:v100", job("a", 16)), view_of("1x8:v100", job("a", 8))

    assert Singularity().decide(replace(short, now=50.0)).wake_at == 350.0
    assert Singularity().decide(served).wake_at is None


MOVE_S = 2 * CheckpointCost().move_s(2) / 8  # of each device of the gang, for the job of two


@pytest.mark.parametrize(
    ("gain_s", "pays"), [(120.0, True), (MOVE_S + 0.01, True), (MOVE_S - 0.01, False), (0.0, False)]
)
def test_a_move_that_costs_more_than_it_is_worth_is_not_made(gain_s: float, pays: bool) -> None:
    # Two nodes of 8 with 6 and 5 free devices: a gang of 8 is on one of them if a job moves.
    policy = Singularity(gain_s=gain_s)
    scheduler = Scheduler(policy, parse_cluster("2x8:v100"), knowledge=Knowledge())
    for asked in (job("first", 6, least=6), job("two", 2, least=2), job("three", 3, least=3)):
        scheduler.step(0.0, [Submitted(asked)])
    scheduler.step(10.0, [Finished(JobId("first"), 1)])
    before = dict(scheduler.view(10.0).held())
    scheduler.step(4000.0, [Submitted(job("gang", 8, 1.0, 4000.0, least=8))])

    after = dict(scheduler.view(4000.0).held())
    moved = [name for name, on in before.items() if after[name] != on]
    slices = len(after[JobId("gang")].slices)
    assert (slices, moved) == ((1, ["two"]) if pays else (2, []))


def test_who_is_passed_over_is_remembered_with_no_device() -> None:
    view = view_of("1x8:v100", job("basic", 8, -1.0), job("premium", 8, 1.0))

    memory = Singularity().decide(view).memory

    assert isinstance(memory, SingularityMemory)
    assert {name: points[-1][1] for name, points in memory.held.items()} == {
        "basic": 0.0,
        "premium": 8.0,
    }


@pytest.mark.parametrize(
    "wrong", [{"standard": 0.9, "premium": 0.5}, {"premium": 1.5}, {"window": 0.0}, {"review": 0.0}]
)
def test_guarantees_and_times_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match="singularity"):
        Singularity(**wrong)


@pytest.mark.parametrize(
    ("gpus", "sizes"),
    [
        (3, {"narrow": 1, "wide": 2}),
        (4, {"narrow": 2, "wide": 2}),
        (9, {"narrow": 1, "wide": 8}),
        (10, {"narrow": 2, "wide": 8}),
    ],
)
def test_devices_go_where_a_rank_less_to_take_turns_with_is_worth_most(
    gpus: int, sizes: dict[str, int]
) -> None:
    # Of eight ranks 1 -> 2 devices bring 1.15 of a device, 2 -> 4 1.05 each and 4 -> 8 0.88 each,
    # as the all-reduce takes longer over more of them; of two ranks 1 -> 2 brings 0.82.
    view = view_of(f"1x{gpus}:v100", job("narrow", 2, -1.0), job("wide", 8, -1.0))

    assert held_after(view, Singularity().decide(view)) == sizes
