"""Gandiva_fair (EuroSys 2020): stride, split stride, balancing, trading, and users' shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cheap import check_contract

from weft.core.asleep.rules import StopRules
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Event
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.trace import Trace, Truth
from weft.core.scheduler import Scheduler
from weft.core.stops import SLEEPS
from weft.formulas.fairness.shares import share_fairly
from weft.perf.replay import Replay
from weft.perf.throughputs import ThroughputBeliefs, Throughputs
from weft.sim.asleep import SleepSimulation
from weft.sim.driver import Simulation
from weft.sim.physics import ChangeTerms, Physics
from weft.testing import view_of
from weft.testing.build import with_knowledge
from weft_papers.gandiva_fair.homes import Homes
from weft_papers.gandiva_fair.policy import GandivaFair, GandivaFairMemory, _entitlements, _homes
from weft_papers.gandiva_fair.stride import StrideGang, choose, choose_split
from weft_papers.gandiva_fair.trading import trade, trade_all

ONE, TWO = NodeId("one"), NodeId("two")


def quanta(
    jobs: Mapping[str, tuple[int, float]], gpus: int, count: int
) -> tuple[list[str], dict[str, int]]:
    """Who runs in each quantum on one server, and GPU-quanta of each."""
    passed = dict.fromkeys(jobs, 0.0)
    ran, used = [], dict.fromkeys(jobs, 0)
    for _ in range(count):
        gangs = [
            StrideGang(JobId(name), {ONE: size}, passed[name], i)
            for i, (name, (size, _)) in enumerate(jobs.items())
        ]
        now = sorted(str(gang.id) for gang in choose(gangs, gpus))
        for name in now:
            size, tickets = jobs[name]
            passed[name] += size / tickets
            used[name] += size
        ran.append("".join(now))
    return ran, used


# ---- the worked examples


def test_s1_gangs_with_tickets_in_proportion_alternate() -> None:
    jobs = {"A": (4, 4.0), "B": (2, 2.0), "C": (1, 1.0), "D": (1, 1.0)}

    ran, used = quanta(jobs, 4, 4)

    assert ran == ["A", "BCD", "A", "BCD"]
    assert {name: used[name] / jobs[name][1] for name in jobs} == dict.fromkeys("ABCD", 2.0)


def test_s2_a_whole_server_gang_with_one_ticket_waits_its_turn() -> None:
    ran, used = quanta({"A": (4, 1.0), "B": (1, 1.0), "C": (1, 1.0), "D": (2, 1.0)}, 4, 12)

    assert ran == ["A", *["BCD"] * 4, "A", *["BCD"] * 4, "A", "BCD"]
    assert used == {"A": 12, "B": 9, "C": 9, "D": 18}


def test_s3_only_the_binding_pair_gets_what_its_tickets_say() -> None:
    ran, used = quanta({"A": (4, 4.0), "B": (2, 1.0), "C": (1, 2.0), "D": (1, 1.0)}, 4, 12)

    assert ran == ["A", "BCD", "BCD"] * 4
    assert used == {"A": 16, "B": 16, "C": 8, "D": 8}


def test_split_stride_alternates_a_large_gang_with_the_servers() -> None:
    sizes = {"L": {ONE: 4, TWO: 4}, "a": {ONE: 2}, "b": {ONE: 2}, "c": {TWO: 4}}
    tickets = {"L": 8.0, "a": 2.0, "b": 2.0, "c": 4.0}
    passed, servers = dict.fromkeys(sizes, 0.0), {ONE: 0.0, TWO: 0.0}
    ran = []
    for _ in range(4):
        gangs = [StrideGang(JobId(j), sizes[j], passed[j], i) for i, j in enumerate(sizes)]
        now = [str(gang.id) for gang in choose_split(gangs, {ONE: 4, TWO: 4}, servers)]
        for job in now:
            passed[job] += sum(sizes[job].values()) / tickets[job]
        for node in servers:
            servers[node] += sum(sizes[j].get(node, 0) for j in now if j != "L") / 4.0
        ran.append("".join(sorted(now)))

    assert ran == ["L", "abc", "L", "abc"]


def test_a_newcomer_goes_to_the_least_loaded_server() -> None:
    cluster = parse_cluster("2x8:v100+1x4:v100")
    first, second, third = (node.id for node in cluster.nodes)
    homes = Homes(cluster.nodes)
    there = {first: (4.0, 2.0, 2.0), second: (2.0, 2.0), third: (3.0,)}
    for node, tickets in there.items():
        for i, ticket in enumerate(tickets):
            homes.set_home(JobId(f"{node}-{i}"), {node: int(ticket)}, ticket)

    assert [homes.load(node.id) for node in cluster.nodes] == [1.0, 0.5, 0.75]
    assert homes.least_loaded(1, "v100") == {second: 1}


@pytest.mark.parametrize(
    ("room", "weights", "demands", "given"),
    [(8, (1, 1, 1), (4, 4, 2), (3, 3, 2)), (24, (1, 2, 1), (4, 20, 20), (4, 40 / 3, 20 / 3))],
)
def test_nobody_is_entitled_to_more_than_it_can_use(
    room: int, weights: tuple[int, ...], demands: tuple[int, ...], given: tuple[float, ...]
) -> None:
    shares = share_fairly(room, np.array(weights, float), np.array(demands, float))

    assert shares.tolist() == pytest.approx(given)


@pytest.mark.parametrize(
    ("held", "speedups", "slow", "fast"),
    [
        ((0.33, 0.33, 0.34), (4, 6, 8), (1.0, 0, 0), (0.190833, 0.4125, 0.396667)),
        ((8, 8, 8), (1.25, 5, 3), (22.666667, 0, 1.333333), (0, 10.666667, 13.333333)),
        ((10, 10), (1.25, 4), (20, 0), (2, 18)),
    ],
)
def test_trades_as_worked_by_hand(
    held: Sequence[float], speedups: Sequence[float], slow: Sequence[float], fast: Sequence[float]
) -> None:
    users = [f"u{i}" for i in range(len(held))]
    slows, fasts = (dict(zip(users, held, strict=True)) for _ in range(2))

    trade(slows, fasts, dict(zip(users, speedups, strict=True)))

    assert list(slows.values()) == pytest.approx(slow, abs=1e-6)
    assert list(fasts.values()) == pytest.approx(fast, abs=1e-6)


# ---- invariants


@given(
    st.lists(
        st.tuples(st.floats(0.1, 20), st.floats(0.1, 20), st.floats(1.0, 10.0)),
        min_size=2,
        max_size=6,
    )
)
def test_nobody_is_worse_off_by_trading(drawn: list[tuple[float, float, float]]) -> None:
    users = [f"u{i}" for i in range(len(drawn))]
    slow = {u: s for u, (s, _, _) in zip(users, drawn, strict=True)}
    fast = {u: f for u, (_, f, _) in zip(users, drawn, strict=True)}
    speedup = {u: r for u, (_, _, r) in zip(users, drawn, strict=True)}
    before = {u: slow[u] + speedup[u] * fast[u] for u in users}
    totals = sum(slow.values()), sum(fast.values())

    trade(slow, fast, speedup)

    assert (sum(slow.values()), sum(fast.values())) == pytest.approx(totals)
    for user in users:
        assert slow[user] >= -1e-9
        assert fast[user] >= -1e-9
        assert slow[user] + speedup[user] * fast[user] >= before[user] - 1e-6


def test_three_generations_trade_the_outermost_first() -> None:
    holdings = {kind: {"a": 4.0, "b": 4.0} for kind in ("k80", "p100", "v100")}
    rates = {
        "a": {"k80": 1.0, "p100": 1.2, "v100": 1.3},
        "b": {"k80": 1.0, "p100": 3.0, "v100": 8.0},
    }

    trades = trade_all(holdings, ("k80", "p100", "v100"), rates)

    worth = {
        user: sum(rates[user][kind] * holdings[kind][user] for kind in holdings) for user in rates
    }
    assert trades[0].buyer == "b"
    assert worth["a"] >= 4.0 * 3.5 - 1e-9
    assert worth["b"] > 4.0 * 12.0


@pytest.mark.parametrize("policy", [GandivaFair(trading=False, balance=False)])
def test_gandiva_fair_keeps_the_contract_of_policies(policy: GandivaFair) -> None:
    check_contract(policy)


def test_tickets_of_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="weights"):
        GandivaFair(weights={"a": 0.0})


def gpu_seconds(
    policy: GandivaFair, cluster: str, jobs: list[Job], until: float, stops: StopRules | None = None
) -> dict[str, float]:
    """GPU time that each user had before `until`, under jobs of twice that length."""
    machines = parse_cluster(cluster)
    trace = Trace("users", tuple((job, Truth(2.0 * until)) for job in jobs))
    user = {job.id: job.user for job in jobs}
    since: dict[JobId, tuple[float, int]] = {}
    got = dict.fromkeys(user.values(), 0.0)

    def account(at: float, event: Event) -> None:
        if not isinstance(event, Decided) or at > until:
            return
        for job, on in event.changes.items():
            start, gpus = since.pop(job, (at, 0))
            got[user[job]] += (at - start) * gpus
            if on is not None:
                since[job] = at, on.gpus

    scheduler = Scheduler(policy, machines, knowledge=Knowledge(), journal=account, stops=stops)
    sleep_sim = None if stops is None or stops.memory is None else SleepSimulation(stops.memory)
    Simulation(
        scheduler,
        Physics(trace, Replay(0.0), terms=ChangeTerms(resume_s=0.0)),
        machines,
        sleep_sim=sleep_sim,
    ).run()
    for job, (start, gpus) in since.items():
        got[user[job]] += (until - start) * gpus
    return got


def users_jobs(user: str, *gangs: int, kinds: tuple[str, ...] = ()) -> list[Job]:
    return [
        Job(JobId(f"{user}-{i}"), demand=Demand(gang, kinds=kinds), user=user)
        for i, gang in enumerate(gangs)
    ]


def test_users_get_gpu_time_by_weight_whatever_their_gangs() -> None:
    jobs = users_jobs("three", *[1] * 12) + users_jobs("one", 4, 4, 2, 2)

    got = gpu_seconds(GandivaFair(weights={"three": 3.0}), "2x4:v100", jobs, 4 * 3600.0)

    total = sum(got.values())
    assert total == pytest.approx(8 * 4 * 3600.0, rel=0.02)
    assert got["three"] / total == pytest.approx(0.75, rel=0.05)


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("cluster", ["1x2:h200", "2x4:h200"])
def test_jobs_that_sleep_where_they_ran_get_their_shares_as_well(
    cluster: str, *, saves: bool
) -> None:
    gpus = parse_cluster(cluster).gpus
    jobs = [
        job
        for pair in zip(
            users_jobs("three", *[1] * gpus), users_jobs("one", *[1] * gpus), strict=True
        )
        for job in pair
    ]
    stops = StopRules(frozenset(SLEEPS), all_save=saves, memory=lambda *_: 10.0)

    got = gpu_seconds(GandivaFair(weights={"three": 3.0}), cluster, jobs, 4 * 3600.0, stops)

    total = sum(got.values())
    assert total == pytest.approx(gpus * 4 * 3600.0, rel=0.02)
    assert got["three"] / total == pytest.approx(0.75, rel=0.05)


def test_a_user_who_asks_for_little_leaves_the_rest_to_the_others() -> None:
    jobs = users_jobs("small", 1) + users_jobs("big", 2, 2, 2, 1, 1, 1, 1)

    got = gpu_seconds(GandivaFair(), "2x4:v100", jobs, 3 * 3600.0)

    assert got["small"] == pytest.approx(3 * 3600.0, rel=0.05)
    assert sum(got.values()) >= 0.95 * 8 * 3 * 3600.0  # a single GPU that no gang there fits


def test_a_gang_larger_than_a_server_gets_its_turns() -> None:
    jobs = users_jobs("large", 8) + users_jobs("small", *[2] * 8)

    got = gpu_seconds(GandivaFair(), "2x4:v100", jobs, 3 * 3600.0)

    assert got["large"] == pytest.approx(0.5 * sum(got.values()), rel=0.05)


def test_everybody_has_the_same_part_of_every_kind_and_nothing_is_left() -> None:
    jobs = [*users_jobs("a", 8, 8), *users_jobs("b", 8, 8)]
    view = view_of("1x8:v100+1x4:t4", *jobs)

    due = _entitlements(view, {job.id: job for job in jobs}, {"a": 3.0, "b": 1.0})

    assert due["v100"] == pytest.approx({"a": 6.0, "b": 2.0})
    assert due["t4"] == pytest.approx({"a": 3.0, "b": 1.0})


@pytest.mark.parametrize(("preemptible", "home"), [(False, "v100-1"), (True, "v100-0")])
def test_who_may_not_be_stopped_is_at_home_where_it_runs(preemptible: bool, home: str) -> None:
    job = Job(JobId("one"), demand=Demand(2), preemptible=preemptible)
    view = view_of("2x4:v100", job)
    view.table.allocations[0] = Allocation((Slice(NodeId("v100-1"), (0, 1)),))
    kept = GandivaFairMemory(home={job.id: {NodeId("v100-0"): 2}})

    assert _homes(view, kept, {job.id: job}).home[job.id] == {NodeId(home): 2}


def test_who_runs_and_has_no_home_is_at_home_where_it_runs() -> None:
    job = Job(JobId("one"), demand=Demand(2))
    view = view_of("2x4:v100", job)
    view.table.allocations[0] = Allocation((Slice(NodeId("v100-1"), (0, 1)),))

    assert _homes(view, GandivaFairMemory(), {job.id: job}).home == {job.id: {NodeId("v100-1"): 2}}


@pytest.mark.parametrize("trading", [False, True])
def test_who_gains_most_from_fast_gpus_buys_them_with_slow_ones(trading: bool) -> None:
    # Of four V100 and four K80 each user is entitled to two. A language model is 1.3 times as fast
    # on a V100, a vision model 5 times: at 1.3 K80 each, its user buys 2 / 1.3 of them.
    jobs = [
        replace(job, model=f"{job.user}-model")
        for job in users_jobs("lm", *[1] * 8) + users_jobs("vision", *[1] * 8)
    ]
    rates = {"lm-model": (1.0, 1.3), "vision-model": (1.0, 5.0)}
    table = Throughputs(
        {
            kind: {(model, 1): speeds[i] for model, speeds in rates.items()}
            for i, kind in enumerate(("k80", "v100"))
        },
        {},
    )
    view = with_knowledge(view_of("1x4:v100+1x4:k80", *jobs), beliefs=ThroughputBeliefs(table))

    memory = GandivaFair(trading=trading).decide(view).memory

    assert isinstance(memory, GandivaFairMemory)
    on_fast = dict.fromkeys(("lm", "vision"), 0)
    for job in jobs:
        on_fast[job.user] += any(node.startswith("v100") for node in memory.home[job.id])
    assert (on_fast["vision"] > on_fast["lm"]) is trading
