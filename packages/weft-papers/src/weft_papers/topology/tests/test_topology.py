"""Topology-aware scheduling: its worked numbers on a POWER8 machine, and its invariants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.events.event import Decided, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.model.node_types import NODE_TYPES
from weft.core.model.topology import GpuLink, NodeTopology
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.formulas.network.link_scores import list_sets
from weft.pieces.place.gangs import fewest_nodes
from weft.testing.build import view_of
from weft_papers.topology.policy import GpuChoice, Mapper, Topology, TopologyMachine, bipartition
from weft_papers.topology.utility import (
    WEIGHTS,
    Emphasis,
    Form,
    TopologyUtility,
    price_communication,
    price_fragments,
)

POWER8 = NODE_TYPES["power8"]
ALL = 0b1111
PAIRS = list(combinations(range(4), 2))


def job(gpus: int, name: str = "a", least: float = 0.0) -> Job:
    return Job(JobId(name), demand=Demand(gpus), model="m", hints={"min_utility": least})


@dataclass(frozen=True)
class Slowed:
    """Everybody is slowed alike by everybody."""

    to: float

    def speed(self, job: Job, beside: Job) -> float:
        return self.to


def utilities(communication: float, interference: float, fragments: float) -> tuple[float, float]:
    utility = TopologyUtility()
    c, i, f = (np.array([cost]) for cost in (communication, interference, fragments))
    return float(utility.of_job(c, i)[0]), float(utility.of_system(c, i, f)[0])


@pytest.mark.parametrize(
    ("costs", "of_job", "of_system"),
    [
        ((0.01, 0.01, 0.5), 1.000000, 0.527794),
        ((0.475, 0.01, 0.5), 0.253420, 0.361202),
        ((0.475, 0.8, 0.25), 0.126292, 0.276384),
    ],
)
def test_utilities_are_those_of_the_worked_table(
    costs: tuple[float, float, float], of_job: float, of_system: float
) -> None:
    assert utilities(*costs) == pytest.approx((of_job, of_system), abs=1e-6)


def test_the_best_utilities_divide_by_the_published_maxima() -> None:
    # 1 / (n * 0.01^(1/n)) for three terms and for two.
    assert pytest.approx(1.547196, abs=1e-6) == 1 / (3 * 0.01 ** (1 / 3))
    assert pytest.approx(5.0) == 1 / (2 * 0.01 ** (1 / 2))
    assert utilities(0.01, 0.01, 0.01) == pytest.approx((1.0, 1.0))


def test_the_sum_of_a_jobs_own_costs_is_by_weights_that_add_up_to_one() -> None:
    utility = TopologyUtility("locality", "sum")

    gained = utility.of_job(np.array([1.0, 0.01]), np.array([0.01, 1.0]))

    assert gained.tolist() == pytest.approx(
        [0.009 / (0.8 + 0.001), 0.009 / (0.008 + 0.1)], abs=1e-4
    )


def test_communication_is_distance_beyond_the_least_over_the_worst() -> None:
    pairs = dict(zip(PAIRS, price_communication(POWER8, 2), strict=True))

    assert pairs[0, 1] == pairs[2, 3] == 0.01
    assert pairs[0, 2] == pytest.approx(19 / 40)
    assert price_communication(POWER8, 1).tolist() == [0.01] * 4
    assert price_communication(POWER8, 3).tolist() == [0.01] * 4  # 41 - 41


def test_no_set_is_priced_above_the_one_that_is_furthest_apart() -> None:
    # Four sockets of four GPUs: 1 within a socket, 20 between them. Six pairs are 114 further apart
    # on four sockets than on one, more than four times the greatest distance.
    sockets = tuple(tuple(range(first, first + 4)) for first in range(0, 16, 4))
    links = tuple(GpuLink(a, b, 1, 20.0) for group in sockets for a, b in combinations(group, 2))
    square = NodeTopology("square", 16, links, sockets)

    prices = dict(
        zip(combinations(range(16), 4), price_communication(square, 4).tolist(), strict=True)
    )

    assert prices[0, 1, 2, 3] == 0.01
    assert prices[0, 4, 8, 12] == max(prices.values()) == 1.0
    assert prices[0, 1, 4, 5] == pytest.approx(76 / 114)


def test_fragments_are_the_mean_of_what_sockets_keep_free() -> None:
    masks = list_sets(4, 2)

    whole = dict(zip(PAIRS, price_fragments(POWER8, ALL, masks), strict=True))

    assert whole[0, 1] == whole[0, 2] == 0.5
    assert price_fragments(POWER8, 0b0111, np.array([0b0101]))[0] == 0.25
    assert price_fragments(POWER8, 0b0011, np.array([0b0011]))[0] == 0.01  # nothing is left
    shipped = price_fragments(POWER8, 0b0111, np.array([0b0001]), shipped=True)
    assert shipped[0] == 0.25  # what is not taken was taken away


def test_interference_is_suffered_and_caused() -> None:
    neighbour = job(1, "n")
    machine = TopologyMachine(POWER8, 0b1110, ((neighbour, 0b01),))
    near, far = (0b0010, 0b0100)

    quiet = Mapper().best_set(job(1), machine)
    disturbed = Mapper(bus=Slowed(0.5)).best_set(job(1), machine)
    backwards = Mapper(bus=Slowed(0.5), shipped=True).best_set(job(1), machine)

    assert quiet is not None
    assert quiet.mask == near  # it fills the socket that is in use already
    assert disturbed is not None
    assert disturbed.mask == far
    assert disturbed.job == pytest.approx(1.0)
    assert backwards is not None


def test_a_pair_on_an_empty_machine_is_of_one_socket() -> None:
    best = Mapper().best_set(job(2), TopologyMachine(POWER8, ALL))

    assert best is not None
    assert best.mask == 0b0011
    assert best.job == pytest.approx(1.0)
    assert best.system == pytest.approx(0.527794, abs=1e-6)


def crossed(least: float) -> View:
    """A machine whose GPUs 0 and 2 are free, and a pair that waits."""
    view = view_of(parse_cluster("1x4:p100@power8"), ("a", 2, 60.0))
    view.free.take(Allocation((view.free.slice_of(0, 0b1010),)))
    view.table.jobs[0] = replace(view.job(0), hints={"min_utility": least})
    return view


def test_topo_aware_places_what_topo_aware_p_postpones() -> None:
    placed = Topology().decide(crossed(0.5))
    postponed = Topology("postpone").decide(crossed(0.5))
    modest = Topology("postpone").decide(crossed(0.25))

    assert len(placed.changes) == 1
    assert not postponed.changes
    assert len(modest.changes) == 1  # its own utility is 0.2534


def test_the_baselines_take_the_first_gpus_of_the_first_or_the_fullest_machine() -> None:
    view = view_of(parse_cluster("2x4:p100@power8"), ("a", 1, 60.0))
    view.free.take(Allocation((view.free.slice_of(1, 0b0001),)))

    def where(place: str) -> tuple[str, tuple[int, ...]]:
        mark = view.free.mark()
        (on,) = Topology(place).decide(view).changes.values()  # type: ignore[arg-type]
        view.free.rollback(mark)
        assert on is not None
        return on.slices[0].node, on.slices[0].gpus

    assert where("fcfs") == ("p100-0", (0,))
    assert where("best-fit") == ("p100-1", (1,))
    assert where("topology") == ("p100-1", (1,))  # it fills a socket


@given(
    st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3),
    st.integers(0, 2),
    st.floats(0.01, 1.0),
    st.sampled_from(get_args(Emphasis)),
    st.sampled_from(get_args(Form)),
)
def test_utility_is_in_bounds_and_falls_when_a_cost_rises(
    costs: list[float], which: int, more: float, emphasis: Emphasis, form: Form
) -> None:
    utility = TopologyUtility(emphasis, form)
    worse = list(costs)
    worse[which] = min(costs[which] + more, 1.0)

    before, after = (float(utility.of_system(*map(np.array, c))) for c in (costs, worse))
    own = float(utility.of_job(np.array(costs[0]), np.array(costs[1])))

    assert 0.0 < after <= before <= 1.0
    assert 0.0 < own <= 1.0
    assert sum(WEIGHTS[emphasis]) == pytest.approx(1.0)


def utility_by_hand(gpus: tuple[int, ...], free: int, slowed: float) -> float:
    """Of a set on a POWER8 machine with a neighbour on the first socket."""
    apart = sum(1 if a // 2 == b // 2 else 20 for a, b in combinations(gpus, 2))
    least, worst = {1: (0, 1), 2: (1, 40), 3: (41, 60), 4: (82, 80)}[len(gpus)]
    touches = any(gpu < 2 for gpu in gpus)
    left = [sum(free >> g & 1 and g not in gpus for g in pair) / 2 for pair in ((0, 1), (2, 3))]
    broken = sum(left) / 2
    costs = (
        max((apart - least) / worst, 0.01),
        max(1.0 - slowed, 0.01) if touches else 0.01,
        0.01 if broken in (0.0, 1.0) else broken,
    )
    return float(1 / sum(cost ** (1 / 3) for cost in costs) / 1.5471962)


@given(free=st.integers(0, 15), count=st.integers(1, 4), slowed=st.floats(0.5, 1.0))
def test_a_machine_gives_the_best_of_all_sets_that_are_free(
    free: int, count: int, slowed: float
) -> None:
    machine = TopologyMachine(POWER8, free, ((job(1, "n"), 0b01),))
    chosen = Mapper(bus=Slowed(slowed)).best_set(job(count), machine)

    members = [gpu for gpu in range(4) if free >> gpu & 1]
    worth = [utility_by_hand(gpus, free, slowed) for gpus in combinations(members, count)]

    assert (chosen is None) == (not worth)
    if chosen is not None:
        assert chosen.mask & ~free == 0
        assert chosen.mask.bit_count() == count
        assert chosen.system == pytest.approx(max(worth), abs=1e-6)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9), st.integers(1, 4))
def test_bipartition_finds_a_machine_of_the_greatest_utility(worth: list[float], room: int) -> None:
    def best(machine: int) -> GpuChoice | None:
        return GpuChoice(1, worth[machine], 1.0) if worth[machine] > 0.0 else None

    chosen = bipartition(range(len(worth)), lambda machine: machine % room, best)

    if chosen is None:
        assert max(worth) == 0.0
    else:
        assert chosen[1].system == max(worth)


def test_of_two_halves_as_good_the_second_is_taken() -> None:
    chosen = bipartition(range(2), lambda _: 4, lambda _: GpuChoice(1, 0.5, 0.5))

    assert chosen is not None
    assert chosen[0] == 1


def test_gangs_beyond_a_machine_and_machines_without_links_are_served() -> None:
    for text in ("2x4:p100@power8", "2x4:p100", "1x32:p100"):
        view = view_of(parse_cluster(text), ("a", 6, 60.0), ("b", 2, 60.0))
        plan = Topology("postpone").decide(view)
        assert len(plan.changes) == 2
        assert fewest_nodes(view.job(0), view.free) is None or text == "1x32:p100"


@dataclass(frozen=True)
class Hurts:
    """Everybody slows models called `hurt` to a third, and nobody else."""

    def speed(self, job: Job, beside: Job) -> float:
        return 0.3 if job.model == "hurt" else 1.0


def test_a_job_goes_where_it_slows_nobody() -> None:
    # One GPU is free on each machine, beside `calm` or `hurt`; of equals the second is taken.
    cluster = parse_cluster("2x4:p100@power8")
    state = State(cluster)
    for name, gpus in (("calm", 3), ("hurt", 3), ("new", 1)):
        state.fold(0.0, Submitted(replace(job(gpus, name), model=name)))
    held = {
        JobId(name): Allocation((state.free.slice_of(node, 0b1101),))
        for node, name in enumerate(("calm", "hurt"))
    }
    state.fold(0.0, Decided(1, held))

    where = {}
    for bus in (None, Hurts()):
        view = View(0.0, state.table, cluster, state.free, Knowledge(bus=bus))
        mark = view.free.mark()
        on = Topology().decide(view).changes[JobId("new")]
        view.free.rollback(mark)
        assert on is not None
        where[bus is None] = on.slices[0].node

    assert where == {True: cluster.nodes[1].id, False: cluster.nodes[0].id}


@pytest.mark.parametrize("fuller", [0, 1])
def test_a_single_gpu_goes_to_the_machine_where_less_is_kept_free(fuller: int) -> None:
    # One machine has a GPU left and the other has all four: only fragments tell them apart.
    cluster = parse_cluster("2x4:p100@power8")
    state = State(cluster)
    for name, gpus in (("there", 3), ("new", 1)):
        state.fold(0.0, Submitted(job(gpus, name)))
    on = Allocation((state.free.slice_of(fuller, 0b1101),))
    state.fold(0.0, Decided(1, {JobId("there"): on}))
    view = View(0.0, state.table, cluster, state.free, Knowledge())

    new = Topology().decide(view).changes[JobId("new")]

    assert new is not None
    assert new.slices[0].node == cluster.nodes[fuller].id
