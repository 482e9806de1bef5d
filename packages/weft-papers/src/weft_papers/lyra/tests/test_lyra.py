"""Lyra: the worked examples of reclaiming and of the knapsack, and what must always hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.seeds import seeds

from weft.app.simulate.setup import read_loans
from weft.core.events.event import (
    Decided,
    Event,
    Finished,
    LoanRecalled,
    NodeDown,
    NodeUp,
    Started,
    Submitted,
)
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Config, Demand, Job, JobId, NodeId, Sharing
from weft.core.model.trace import Trace, Truth
from weft.core.scheduler import Scheduler
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.core.state.table import JobTable
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.predict.oracle import Oracle
from weft.sim.driver import Simulation
from weft.sim.loans import Loans, RecordedDemand
from weft.sim.physics import ChangeTerms, Physics
from weft.testing import cluster_of, view_of
from weft.testing.build import with_knowledge
from weft_papers.lyra.policy import Lyra
from weft_papers.lyra.reclaim import (
    Rule,
    choose_servers,
    empty_cheapest,
    empty_exactly,
    jobs_lost,
    server_costs,
)
from weft_papers.lyra.workers import believed_speeds, choose_extra, time_saved


def hosts(*servers: str) -> dict[int, set[int]]:
    """Jobs of each server, a letter or digit each."""
    return {i: {ord(job) for job in jobs} for i, jobs in enumerate(servers, 1)}


def lost(servers: dict[int, set[int]], chosen: list[int]) -> str:
    return "".join(sorted(chr(job) for job in jobs_lost(servers, chosen)))


def evenly(servers: dict[int, set[int]]) -> dict[int, int]:
    return dict.fromkeys(servers, 1)


# ---- which servers go back


def test_a_job_on_several_servers_makes_each_of_them_cheaper() -> None:
    servers = hosts("a", "ab", "bc", "d", "ce")

    chosen = empty_cheapest(servers, evenly(servers), 2)

    assert list(server_costs(servers).values()) == [0.5, 1.0, 1.0, 1.0, 1.5]
    assert chosen == [1, 2]
    assert lost(servers, chosen) == "ab"


def test_two_servers_of_one_job_lose_one_job() -> None:
    servers = hosts("2", "1", "1", "34")

    chosen = empty_cheapest(servers, evenly(servers), 2)

    assert chosen == [2, 3]
    assert lost(servers, chosen) == "1"
    assert lost(servers, [1, 2]) == "12"  # those with fewest jobs, in order


def test_costs_fall_when_jobs_are_stopped_elsewhere() -> None:
    servers = hosts("pq", "p", "q", "r", "t")

    chosen = empty_cheapest(servers, evenly(servers), 3)

    assert list(server_costs(servers).values()) == [1.0, 0.5, 0.5, 1.0, 1.0]
    assert chosen == [2, 1, 3]
    assert lost(servers, chosen) == "pq"


def test_the_greedy_is_not_always_best_and_ties_by_fewest_jobs_repair_a_case() -> None:
    servers = hosts("134", "0", "12", "134567", "345", "67")

    plain = empty_cheapest(servers, evenly(servers), 1)
    repaired = empty_cheapest(servers, evenly(servers), 1, fewest_jobs=True)

    assert (plain, lost(servers, plain)) == ([1], "134")
    assert (repaired, lost(servers, repaired)) == ([2], "0")
    assert empty_exactly(servers, plain) == [2]


def test_idle_servers_go_first_and_then_those_with_flexible_workers_alone() -> None:
    servers: dict[int, set[int]] = {0: {1}, 1: set(), 2: set(), 3: set()}

    assert empty_cheapest(servers, {0: 1, 1: 8, 2: 0, 3: 2}, 4) == [2, 3, 1, 0]


SETS = st.lists(st.sets(st.integers(0, 6), max_size=4), min_size=1, max_size=7)


@examples(40)
@given(sets=SETS, data=st.data())
def test_the_exact_search_finds_the_fewest_jobs(sets: list[set[int]], data: st.DataObject) -> None:
    servers = dict(enumerate(sets))
    count = data.draw(st.integers(1, len(sets)))

    greedy = empty_cheapest(servers, evenly(servers), count, fewest_jobs=True)
    emptied = empty_exactly(servers, greedy)

    best = min(len(jobs_lost(servers, [*some])) for some in combinations(servers, count))
    assert len(set(emptied)) == count
    assert len(jobs_lost(servers, emptied)) == best <= len(jobs_lost(servers, greedy))


@pytest.mark.parametrize("rule", ["cost", "exact", "fewest", "random"])
def test_every_rule_gives_back_as_many_as_are_wanted(rule: str) -> None:
    servers = hosts("a", "ab", "bc", "d", "ce")

    chosen = choose_servers(rule, servers, evenly(servers), 3, np.random.default_rng(0))  # type: ignore[arg-type]

    assert len(set(chosen)) == 3
    assert set(chosen) <= servers.keys()


# ---- how many flexible workers


def saved(seconds: float, base: int, most: int) -> list[float]:
    return [*time_saved(seconds, np.arange(base, most + 1.0))]


A, B, C = saved(100.0, 2, 6), saved(60.0, 1, 4), saved(200.0, 4, 8)


def test_time_saved_is_that_of_linear_scaling() -> None:
    assert pytest.approx([33.333, 50.0, 60.0, 66.667], abs=1e-3) == A
    assert pytest.approx([30.0, 40.0, 45.0]) == B
    assert pytest.approx([40.0, 66.667, 85.714, 100.0], abs=1e-3) == C


@pytest.mark.parametrize(
    ("room", "extra", "worth"), [(6, [2, 1, 3], 165.714), (3, [1, 1, 1], 103.333), (0, [0] * 3, 0)]
)
def test_the_knapsack_of_the_paper_kind(room: int, extra: list[int], worth: float) -> None:
    groups = [np.array(options) for options in (A, B, C)]

    chosen = choose_extra(groups, room)

    assert chosen == extra
    assert total(groups, chosen) == pytest.approx(worth, abs=1e-3)


def total(groups: list[np.ndarray[tuple[int], np.dtype[np.float64]]], extra: list[int]) -> float:
    return float(sum(g[k - 1] for g, k in zip(groups, extra, strict=True) if k))


@examples(40)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 500), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4
    ),
    room=st.integers(0, 9),
)
def test_the_knapsack_is_exact(jobs: list[tuple[int, int, int]], room: int) -> None:
    groups = [np.array(saved(float(t), base, base + more)) for t, base, more in jobs]

    extra = choose_extra(groups, room)

    every = product(*(range(len(group) + 1) for group in groups))
    best = max(total(groups, [*some]) for some in every if sum(some) <= room)
    assert sum(extra) <= room
    assert total(groups, extra) == pytest.approx(best)
    assert total(groups, extra) >= total(groups, by_density(groups, room)) - 1e-9


def by_density(groups: list[np.ndarray[tuple[int], np.dtype[np.float64]]], room: int) -> list[int]:
    """Items by value for each GPU, at most one a job."""
    items = [
        (-group[k - 1] / k, i, k)
        for i, group in enumerate(groups)
        for k in range(1, len(group) + 1)
    ]
    taken = [0] * len(groups)
    for _, i, k in sorted(items):
        if not taken[i] and sum(taken) + k <= room:
            taken[i] = k
    return taken


def test_ties_keep_the_size_that_is_held() -> None:
    alike = [np.array([10.0]), np.array([10.0])]

    assert choose_extra(alike, 1, [0, 1]) == [0, 1]
    assert choose_extra(alike, 1, [1, 0]) == [1, 0]
    assert choose_extra([np.array([1.0, 2.0, 3.0])], 1, [3]) == [1]  # what is held fits no more


# ---- the policy


def mixed(own: int, lent: int, gpus: int = 4) -> Cluster:
    nodes = [Node(NodeId(f"own-{i}"), "v100", gpus, 8.0, 8.0) for i in range(own)]
    nodes += [Node(NodeId(f"loan-{i}"), "v100", gpus, 8.0, 8.0, loaned=True) for i in range(lent)]
    return Cluster(tuple(nodes))


def elastic(name: str, base: int, most: int, seconds: float) -> Job:
    demand = Demand(base, min=base, max=most)
    return Job(JobId(name), demand=demand, hints={"duration_s": seconds})


def nodes_of(on: Allocation | None) -> dict[str, int]:
    assert on is not None
    return {part.node: len(part.gpus) for part in on.slices}


def test_base_workers_go_to_own_machines_and_flexible_ones_to_loaned_ones() -> None:
    view = view_of(mixed(1, 1), elastic("a", 2, 4, 600.0), elastic("b", 2, 4, 600.0))

    plan = Lyra().decide(view)

    assert nodes_of(plan.changes[JobId("a")]) == {"own-0": 2, "loan-0": 2}
    assert nodes_of(plan.changes[JobId("b")]) == {"own-0": 2, "loan-0": 2}


def test_the_rest_of_a_large_job_goes_to_the_node_that_it_fills_best() -> None:
    nodes = tuple(Node(NodeId(f"own-{gpus}"), "v100", gpus, 8.0, 8.0) for gpus in (4, 3, 2))
    view = view_of(Cluster(nodes), ("large", 6, 600.0))

    plan = Lyra().decide(view)

    assert nodes_of(plan.changes[JobId("large")]) == {"own-4": 4, "own-2": 2}


class OnOneNode(LinearBeliefs):
    """Speed of several nodes is that of one of them."""

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        return np.tile([config.gpus / config.nodes for config in configs], (len(table), 1))


def test_speeds_are_those_of_as_few_nodes_as_the_workers_need() -> None:
    view = view_of(mixed(2, 0), elastic("a", 2, 8, 600.0), elastic("b", 2, 8, 600.0))
    slow = replace(view, knowledge=replace(view.knowledge, beliefs=OnOneNode()))

    assert believed_speeds(slow, "v100", 6)[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 2.5, 3.0]
    held = slow.after(Lyra().decide(slow))
    assert [on.gpus for on in held.values()] == [4, 4]  # more than a node each saves nothing


class HardlyFaster(LinearBeliefs):
    """The first job gains nothing from more GPUs, others what GPUs are."""

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        speeds = np.tile([float(config.gpus) for config in configs], (len(table), 1))
        speeds[table.seq == 0.0] = 1.0
        return speeds


def test_time_with_base_workers_is_by_the_measured_curve() -> None:
    """400 s on four GPUs are 400 s on one for flat, and 1,200 s for steep, which asks for 300."""
    jobs = [
        Job(JobId(name), demand=Demand(4, 1, 4), hints={"duration_s": seconds})
        for name, seconds in (("flat", 400.0), ("steep", 300.0))
    ]
    view = with_knowledge(view_of(1, *jobs), beliefs=HardlyFaster())

    assert set(Lyra().decide(view_of(1, *jobs)).changes) == {"steep"}
    assert set(Lyra().decide(view).changes) == {"flat"}


def test_the_shortest_job_starts_and_the_long_one_waits() -> None:
    jobs = (("long", 4, 900.0), ("short", 4, 60.0))

    assert set(Lyra().decide(view_of(4, *jobs)).changes) == {"short"}
    assert set(Lyra(order="fifo").decide(view_of(4, *jobs)).changes) == {"long"}


def test_without_scaling_everybody_has_base_workers_alone() -> None:
    view = view_of(cluster_of(8), elastic("a", 2, 8, 600.0))

    held = view.after(Lyra(scale=False).decide(view))

    assert held[JobId("a")].gpus == 2


class Run:
    """A whole simulation with loans, its log, and what jobs held after each decision."""

    def __init__(self, policy: Lyra, trace: Trace, loans: Loans) -> None:
        own = mixed(2, 0)
        self.physics = Physics(
            trace, Replay(30.0), terms=ChangeTerms(resize_s=policy.about.resize_s)
        )
        self.log: list[tuple[float, Event]] = []
        knowledge = Knowledge(Oracle(self.physics.remaining), LinearBeliefs())
        journal = lambda at, event: self.log.append((at, event))  # noqa: E731 - a sink
        scheduler = Scheduler(policy, own, knowledge=knowledge, journal=journal)
        self.driver = Simulation(scheduler, self.physics, own, loans=loans)
        self.driver.run()


def draw(seed: int, count: int = 25) -> Trace:
    rng = np.random.default_rng(seed)
    pairs, at = [], 0.0
    for i in range(count):
        at += float(rng.exponential(60.0))
        base = int(rng.choice([1, 2, 4, 6]))
        demand = Demand(base, min=base, max=base * int(rng.choice([1, 2])))
        job = Job(JobId(f"j{i}"), at, demand)
        pairs.append((job, Truth(float(rng.lognormal(5.5, 1.0)))))
    return Trace("drawn", tuple(pairs))


@pytest.mark.parametrize("seed", seeds(6))
def test_what_must_hold_while_machines_come_and_go(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = tuple((300.0 * i, int(rng.integers(0, 4))) for i in range(12))
    trace, lent = draw(seed), read_loans("3x4:v100").nodes

    run = Run(Lyra(), trace, Loans(lent, RecordedDemand(points), headroom=0.0))

    demand = {job.id: job.demand for job, _ in trace}
    wanted, here, held = dict(points), 0, dict[JobId, Allocation]()
    for at, event in run.log:
        if isinstance(event, (NodeUp, NodeDown)):
            here += 1 if isinstance(event, NodeUp) else -1
            in_force = [needed for since, needed in points if since <= at]
            # Whoever owns a machine has it at once, and no machine serves both.
            assert here <= 3 - in_force[-1] or isinstance(event, NodeDown)
        if isinstance(event, Finished):
            held.pop(event.job)
        if isinstance(event, NodeDown):
            on = [
                job
                for job, allocation in held.items()
                if any(p.node == event.node for p in allocation.slices)
            ]
            assert not on, "the policy emptied what goes back"
        if isinstance(event, Decided):
            for job, to in event.changes.items():
                held.pop(job, None)
                if to is not None:
                    held[job] = to
                    assert demand[job].min <= to.gpus <= demand[job].max
    assert wanted
    assert not np.isnan(run.physics.ended_at).any()
    assert run.physics.lost_s.sum() == 0.0


@pytest.mark.parametrize("seed", seeds(3))
def test_without_a_recall_no_base_worker_is_ever_taken_away(seed: int) -> None:
    run = Run(Lyra(), draw(seed, 40), Loans())

    stops = [
        e for _, e in run.log if isinstance(e, Decided) for to in e.changes.values() if to is None
    ]
    assert not stops
    assert run.driver.counts.preemptions == run.physics.resizes


def test_a_job_that_loses_flexible_workers_alone_goes_on() -> None:
    trace = Trace("one", ((elastic("a", 8, 12, 600.0), Truth(600.0)),))
    loans = Loans(
        read_loans("1x4:v100").nodes, RecordedDemand(((0.0, 0), (100.0, 1))), headroom=0.0
    )

    run = Run(Lyra(), trace, loans)

    counts = run.driver.counts.loans
    assert counts is not None
    assert (counts.stopped, counts.scaled_in) == (0, 1)
    assert any(isinstance(event, LoanRecalled) for _, event in run.log)
    assert run.physics.starts[0] == 1
    assert run.physics.ended_at[0] == pytest.approx(100.0 + 600.0 - 100.0 * 12 / 8)


def test_a_job_with_parts_of_a_machine_that_is_given_back_leaves_it() -> None:
    state = State(mixed(1, 1, gpus=1))
    both = Job(JobId("parts"), demand=Demand(2, share=0.5))
    parts = tuple(state.free.slice_of(node, 0b1, 0.5) for node in (0, 1))
    state.fold(0.0, Submitted(both))
    state.fold(0.0, Decided(1, {both.id: Allocation(parts, Sharing(share=0.5))}))
    state.fold(0.0, Started(both.id, 1))
    seen = replace(view_of(state.cluster, both), table=state.table, free=state.free, recalled=1)

    plan = Lyra().decide(seen)

    assert seen.after(plan) == {}


def test_flexible_workers_leave_own_machines_to_base_workers() -> None:
    view = view_of(mixed(2, 1), elastic("a", 2, 6, 600.0))

    plan = Lyra().decide(view)

    assert nodes_of(plan.changes[JobId("a")]) == {"own-0": 2, "loan-0": 4}


def test_base_workers_alone_are_declared_to_leave_gpus_idle() -> None:
    assert Lyra().about.idles == ""
    assert "base workers" in Lyra(scale=False).about.idles


@pytest.mark.parametrize(
    ("a_s", "b_s", "sizes"), [(8000.0, 1000.0, (7, 3)), (1000.0, 8000.0, (3, 7))]
)
def test_what_is_left_goes_to_the_job_that_it_saves_most_time(
    a_s: float, b_s: float, sizes: tuple[int, int]
) -> None:
    # Six GPUs beyond both base demands of two. Five save a job of 8,000 s 5,714 s, and the sixth
    # 286 s; one saves a job of 1,000 s 333 s.
    view = view_of(mixed(1, 1, gpus=5), elastic("a", 2, 8, a_s), elastic("b", 2, 8, b_s))

    held = view.after(Lyra().decide(view))

    assert (held[JobId("a")].gpus, held[JobId("b")].gpus) == sizes


@pytest.mark.parametrize("rule", ["cost", "exact"])
def test_servers_of_one_job_are_given_back_before_those_of_two(rule: Rule) -> None:
    # The first and the last loaned server have half of one job each, the others two jobs each.
    held = {"c": {1: 0b01}, "d": {1: 0b10}, "e": {2: 0b01}, "f": {2: 0b10}, "g": {0: 3, 3: 3}}
    jobs = [Job(JobId(name), demand=Demand(4 if name == "g" else 1)) for name in held]
    state = State(mixed(0, 4, gpus=2))
    for job in jobs:
        state.fold(0.0, Submitted(job))
        parts = (state.free.slice_of(node, mask) for node, mask in held[job.id].items())
        state.fold(0.0, Decided(1, {job.id: Allocation(tuple(parts))}))
        state.fold(0.0, Started(job.id, 1))
    seen = view_of(state.cluster, *jobs)
    seen = replace(seen, table=state.table, free=state.free, recalled=2)

    plan = Lyra(reclaim=rule).decide(seen)

    assert {job for job, on in plan.changes.items() if on is None} == {"g"}
