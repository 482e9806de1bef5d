"""GFS: the worked examples of quota, feedback, scores and victims; and the wrapper at work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Tier
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.frozen import frozen
from weft.policies.fifo import Fifo
from weft_papers.gfs.history import GfsMemory, PromisedHour, SpotRun
from weft_papers.gfs.quota import (
    DemandForecast,
    LastDay,
    SameHourOfWeek,
    add_forecasts,
    adjust_eta,
    free_gpus,
    spot_quota,
)
from weft_papers.gfs.victims import (
    PromiseRecord,
    SpotGuest,
    choose_victims,
    eviction_score,
    node_cost,
)
from weft_papers.gfs.wrapper import Gfs

HOUR = 3600.0
PROMISE = 0.9


def spot(name: str, gpus: int, at: float = 0.0) -> Job:
    return Job(JobId(name), at, Demand(gpus), tier=Tier.OPPORTUNISTIC)


def firm(name: str, gpus: int, at: float = 0.0) -> Job:
    return Job(JobId(name), at, Demand(gpus), tenant="vision")


# ---- worked examples


def test_e1_the_quota_is_what_is_free_above_the_quantile() -> None:
    hours = [
        DemandForecast(60, 4),
        DemandForecast(62, 5),
        DemandForecast(58, 6),
        DemandForecast(55, 7),
    ]

    free = [free_gpus(80, hour, PROMISE) for hour in hours]

    assert free == [15, 12, 15, 17]
    assert spot_quota(free[:1]) == 15
    assert spot_quota(free) == 12
    assert spot_quota(free[:1], 0.8) == pytest.approx(12.0)
    assert spot_quota(free, 0.8) == pytest.approx(9.6)


def test_e2_tenants_are_pooled_as_if_they_did_not_depend_on_each_other() -> None:
    both = add_forecasts([DemandForecast(30, 3), DemandForecast(20, 4)])

    assert both == DemandForecast(50, 5)
    assert free_gpus(64, both, PROMISE) == 8


@pytest.mark.parametrize(
    ("evicted", "factor"), [(0.3, 1 / 3), (0.12, 1.0), (0.15, 2 / 3), (0.05, 1.0)]
)
def test_e3_the_factor_shrinks_where_promises_break(evicted: float, factor: float) -> None:
    assert adjust_eta(1.0, evicted, PROMISE, waits_long=False) == pytest.approx(factor)


def test_e3_the_factor_grows_with_care_where_few_break_and_spot_jobs_wait() -> None:
    assert adjust_eta(1.0, 0.0, PROMISE, waits_long=True) == 1.5
    assert adjust_eta(1.0, 0.05, PROMISE, waits_long=True) == pytest.approx(1.0)
    assert adjust_eta(1.0, 0.02, PROMISE, waits_long=True) == pytest.approx(1.3)
    assert adjust_eta(1.0, 0.0, PROMISE, waits_long=False) == 1.0
    assert adjust_eta(1.0, 0.08, PROMISE, waits_long=True) == 1.0  # neither few nor many


def test_the_factor_stays_between_a_tenth_and_two() -> None:
    assert adjust_eta(0.15, 1.0, PROMISE, waits_long=False) == 0.1
    assert adjust_eta(1.9, 0.0, PROMISE, waits_long=True) == 2.0


@pytest.mark.parametrize(
    ("hour", "day", "score"), [(0, 0, 9900), (1, 1, 9800), (3, 5, 8944.39), (6, 6, 3600), (7, 7, 0)]
)
def test_e4_nodes_are_safer_the_fewer_evictions_there_were(
    hour: int, day: int, score: float
) -> None:
    assert eviction_score(hour, day) == pytest.approx(score, abs=0.005)


def test_e5_the_costliest_and_the_cheapest_are_spared_in_turn() -> None:
    a, b, c = (
        SpotGuest(JobId("a"), 4, 40),
        SpotGuest(JobId("b"), 2, 10),
        SpotGuest(JobId("c"), 2, 5),
    )

    assert choose_victims([a, b, c], 0, 4) == [b, c]
    assert choose_victims([a, b, c], 0, 2) == [c]
    assert choose_victims([a, b, c], 4, 4) == []


def test_e5_after_each_that_gives_way_the_other_end_is_spared() -> None:
    # Of 12 GPUs 6 are wanted: a is spared (8 left), b is not; now d, the cheapest, and c is not.
    names, gpus, costs = "abcd", (4, 4, 2, 2), (40, 20, 10, 5)
    a, b, c, d = (SpotGuest(JobId(n), g, k) for n, g, k in zip(names, gpus, costs, strict=True))

    assert choose_victims([d, b, a, c], 0, 6) == [b, c]


def test_the_cost_of_a_node_counts_promises_and_lost_work() -> None:
    victims = [SpotGuest(JobId("a"), 1, 30.0), SpotGuest(JobId("b"), 1, 10.0)]

    assert node_cost(victims, PromiseRecord(1, 7), 1000.0) == pytest.approx(3 / 10 + 5 * 40 / 1000)
    assert node_cost([], PromiseRecord(), 1000.0) == 0.0


# ---- forecasts


def test_the_same_hour_of_the_week_counts_before_days_and_days_before_hours() -> None:
    hour = 1000
    late = {hour - 1: 9.0, hour - 2: 11.0}
    days = {hour - 24: 2.0, hour - 48: 4.0}
    weeks = {hour - 168: 6.0, hour - 336: 10.0}

    assert SameHourOfWeek().forecast_hour(late, hour) == DemandForecast(10.0, 1.0)
    assert SameHourOfWeek().forecast_hour(late | days, hour) == DemandForecast(3.0, 1.0)
    assert SameHourOfWeek().forecast_hour(late | days | weeks, hour) == DemandForecast(8.0, 2.0)
    assert SameHourOfWeek().forecast_hour({}, hour) == DemandForecast(0.0)
    assert LastDay().forecast_hour(late | weeks, hour) == DemandForecast(10.0, 1.0)


@pytest.mark.parametrize(
    ("first", "last", "beyond"), [(168, 672, 840), (24, 144, 192), (1, 23, 25), (1, 24, 25)]
)
def test_four_weeks_or_seven_days_or_a_day_of_hours_are_looked_back_on(
    first: int, last: int, beyond: int
) -> None:
    past = {1000 - first: 2.0, 1000 - last: 4.0, 1000 - beyond: 99.0}

    assert SameHourOfWeek().forecast_hour(past, 1000) == DemandForecast(3.0, 1.0)


def test_a_day_is_24_hours() -> None:
    assert LastDay().forecast_hour({976: 4.0, 975: 99.0, 1000: 99.0}, 1000) == DemandForecast(4.0)
    assert LastDay().forecast_hour({}, 1000) == DemandForecast(0.0)


def test_what_is_in_use_is_never_forecast_to_be_free() -> None:
    assert free_gpus(8, DemandForecast(1.0), PROMISE, now=5.0) == 3


# ---- the wrapper


def cluster_with(
    now: float,
    *held: tuple[Job, int, int],
    waiting: tuple[Job, ...] = (),
    cluster: str | Cluster = "2x4:v100",
) -> View:
    """Jobs on devices of nodes, by node and mask, and jobs that wait."""
    state = State(parse_cluster(cluster) if isinstance(cluster, str) else cluster)
    for job, node, mask in held:
        state.fold(job.submitted, Submitted(job))
        on = Allocation((state.free.slice_of(node, mask),))
        state.fold(job.submitted, Decided(1, {job.id: on}))
        state.fold(job.submitted, Started(job.id, 1))
    for job in waiting:
        state.fold(job.submitted, Submitted(job))
    return View(now, state.table, state.cluster, state.free, Knowledge())


def known(usage: float, now: float, runs: dict[str, float] | None = None) -> GfsMemory:
    """A day in which so many GPUs were in use, and spot jobs that run since then."""
    hours = range(int(now // HOUR) - 24, int(now // HOUR) + 1)
    began = {
        JobId(job): SpotRun("v100", (parse_cluster("2x4:v100").nodes[0].id,), since)
        for job, since in (runs or {}).items()
    }
    return GfsMemory(usage={hour: {"vision@v100": usage} for hour in hours}, runs=began)


@frozen
class PlacedOn:
    """Starts whatever waits on one node."""

    node: NodeId
    about: About = Fifo().about

    def decide(self, view: View) -> Plan:
        at = view.cluster.index[self.node]
        rows = np.flatnonzero(view.waiting()).tolist()
        jobs = [view.job(row) for row in rows]
        return Plan({j.id: Allocation((view.free.slice(at, j.demand.gpus),)) for j in jobs})


def started(plan: Plan) -> set[str]:
    return {job for job, to in plan.changes.items() if to is not None}


def stopped(plan: Plan) -> set[str]:
    return {job for job, to in plan.changes.items() if to is None}


def test_spot_jobs_start_only_on_what_is_not_expected_to_be_needed() -> None:
    now = 40 * HOUR
    view = cluster_with(now, waiting=(spot("s1", 2), spot("s2", 2), spot("s3", 4)))

    plan = Gfs(Fifo(backfill=True)).decide(replace(view, memory=known(4.0, now)))

    assert started(plan) == {"s1", "s2"}
    assert "4 of the 4 v100 GPUs" in plan.reasons[JobId("s3")]
    assert plan.wake_at == now + 300.0
    assert plan.numbers["spot_quota"] == 4.0


def test_jobs_without_a_promise_use_what_is_kept_from_spot_jobs() -> None:
    now = 40 * HOUR
    filler = Job(JobId("filler"), now, Demand(4), priority=-1.0, tier=Tier.OPPORTUNISTIC)
    view = cluster_with(now, waiting=(spot("s1", 4), filler))

    plan = Gfs(Fifo(backfill=True)).decide(replace(view, memory=known(8.0, now)))

    assert started(plan) == {"filler"}


def test_the_cheapest_spot_job_gives_way_to_a_guaranteed_one() -> None:
    now = 40 * HOUR
    old, new, other = spot("old", 2), spot("new", 2, now - 60), spot("other", 4)
    view = cluster_with(
        now,
        (old, 0, 0b0011),
        (new, 0, 0b1100),
        (other, 1, 0b1111),
        waiting=(firm("wants", 2, now),),
    )
    began = {"old": 0.0, "new": now - 60, "other": 0.0}

    plan = Gfs(Fifo()).decide(replace(view, memory=known(2.0, now, began)))

    assert stopped(plan) == {"new"}
    assert started(plan) == {"wants"}
    assert isinstance(plan.memory, GfsMemory)
    assert plan.memory.total.broken == 1
    assert plan.numbers["promised_hours_broken"] == 1.0


def test_one_broken_promise_costs_less_than_two_though_more_work_is_lost() -> None:
    # Ten promises were kept. One long job on the first node: 1 of 11 hours would break, and 40
    # GPU-hours are 5 x 40 / (8 x 31 x 24) of a month; on the second 2 of 12 hours, and 4 GPU-hours.
    now, node = 40 * HOUR, parse_cluster("2x4:v100").nodes[0].id
    held = [(spot("long", 4), 0, 0b1111), (spot("s1", 2), 1, 0b0011), (spot("s2", 2), 1, 0b1100)]
    view = cluster_with(now, *held, waiting=(firm("wants", 4, now),))
    began = {"long": now - 10 * HOUR, "s1": now - HOUR, "s2": now - HOUR}
    kept = tuple(PromisedHour(now - HOUR, "v100", (node,), kept=True) for _ in range(10))

    plan = Gfs(Fifo()).decide(replace(view, memory=replace(known(2.0, now, began), hours=kept)))

    assert stopped(plan) == {"long"}


@pytest.mark.parametrize(("promise", "quota"), [(0.5, 6.0), (0.7, 5.0), (0.9, 4.0)])
def test_the_higher_the_promise_the_less_is_for_spot_jobs(promise: float, quota: float) -> None:
    # 0 or 4 of 8 were in use in turn: 2, or 2 + 0.524 x 2 = 3.05, or 2 + 1.282 x 2 = 4.56.
    now = 40 * HOUR
    usage = {hour: {"vision@v100": 4.0 * (hour % 2)} for hour in range(16, 40)}
    usage[17]["speech@v100"] = 0.0  # a tenant that had nothing, then and ever
    view = cluster_with(now, waiting=(spot("s", 1),))

    plan = Gfs(Fifo(), promise=promise).decide(replace(view, memory=GfsMemory(usage=usage)))

    assert plan.numbers["spot_quota"] == quota


@pytest.mark.parametrize(
    ("hours", "forecast", "quota"), [(1, "week", 4.0), (2, "week", 3.0), (1, "day", 7.0)]
)
def test_every_hour_of_the_promise_must_be_undisturbed(
    hours: int, forecast: str, quota: float
) -> None:
    # At this time of the week 8, 4, 5 and 8 GPUs were in use, and one in every hour of today.
    this = 400
    used = {
        this - weeks * 168 + ahead: gpus
        for weeks in (1, 2)
        for ahead, gpus in enumerate((8.0, 4.0, 5.0, 8.0))
    }
    used |= dict.fromkeys(range(this - 24, this + 1), 1.0)
    usage = {hour: {"vision@v100": gpus} for hour, gpus in used.items()}
    view = cluster_with(this * HOUR, waiting=(spot("s", 1),))

    plan = Gfs(Fifo(), hours=hours, forecast=forecast).decide(
        replace(view, memory=GfsMemory(usage=usage))
    )

    assert plan.numbers["spot_quota"] == quota


def test_what_is_needed_of_one_kind_is_not_kept_of_another() -> None:
    now, both = 40 * HOUR, "1x4:v100+1x4:t4"
    only = replace(spot("only", 1), demand=Demand(1, kinds=("v100",)))
    view = cluster_with(now, waiting=(only, spot("any", 3)), cluster=both)

    plan = Gfs(Fifo(backfill=True)).decide(replace(view, memory=known(4.0, now)))

    assert started(plan) == {"any"}
    assert plan.numbers["spot_quota"] == 4.0
    assert "0 of the 0 v100 GPUs" in plan.reasons[JobId("only")]


@pytest.mark.parametrize(("looked", "starts"), [(299.0, set()), (300.0, {"s"})])
def test_quotas_are_renewed_every_five_minutes(looked: float, starts: set[str]) -> None:
    now = 40 * HOUR
    memory = replace(known(4.0, now), quota={"v100": 1.0}, looked=now - looked)
    view = cluster_with(now, waiting=(spot("s", 2),))

    assert started(Gfs(Fifo()).decide(replace(view, memory=memory))) == starts


def test_spot_jobs_that_run_count_for_the_quota() -> None:
    now = 40 * HOUR
    runs = (spot("runs", 2), 0, 0b0011)
    view = cluster_with(now, runs, waiting=(spot("s3", 3, now), spot("s2", 2, now)))

    plan = Gfs(Fifo(backfill=True)).decide(
        replace(view, memory=known(4.0, now, {"runs": now - 60.0}))
    )

    assert started(plan) == {"s2"}
    assert "2 of the 4 v100 GPUs" in plan.reasons[JobId("s3")]


def test_no_spot_job_gives_way_to_one_without_any_promise() -> None:
    now = 40 * HOUR
    filler = Job(JobId("filler"), now, Demand(4), priority=-1.0, tier=Tier.OPPORTUNISTIC)
    held = [(spot("s0", 4), 0, 0b1111), (spot("s1", 4), 1, 0b1111)]
    view = cluster_with(now, *held, waiting=(filler,))

    plan = Gfs(Fifo()).decide(replace(view, memory=known(0.0, now, {"s0": 0.0, "s1": 0.0})))

    assert not plan.changes


def test_lost_work_is_time_on_every_gpu() -> None:
    # One ran 1,000 s on four GPUs, the other 1,500 s on two, with two free beside it.
    now = 40 * HOUR
    held = [(spot("wide", 4), 0, 0b1111), (spot("thin", 2), 1, 0b0011)]
    view = cluster_with(now, *held, waiting=(firm("wants", 4, now),))
    began = {"wide": now - 1000.0, "thin": now - 1500.0}

    plan = Gfs(Fifo()).decide(replace(view, memory=known(2.0, now, began)))

    assert stopped(plan) == {"thin"}


def test_the_node_that_has_least_beside_guaranteed_jobs_is_cleared() -> None:
    # On the first node all four GPUs are free of guaranteed jobs, on the second three are.
    now = 40 * HOUR
    held = [(spot("new", 4), 0, 0b1111), (firm("f", 1), 1, 0b1000), (spot("old", 3), 1, 0b0111)]
    view = cluster_with(now, *held, waiting=(firm("wants", 2, now),))

    plan = Gfs(Fifo()).decide(
        replace(view, memory=known(3.0, now, {"new": now - 60.0, "old": 0.0}))
    )

    assert stopped(plan) == {"old"}


def test_what_all_tenants_need_together_is_kept_from_spot_jobs() -> None:
    # One tenant used 1 or 3 of 8 GPUs in turn, the other 0 or 4; in this hour nobody has used any
    # yet. The squares of their deviations add up, not the deviations: 6 GPUs are kept and not 7.
    now = 40 * HOUR
    memory = known(1.0, now)
    usage = {
        hour: {"vision@v100": 1.0 + 2.0 * (hour % 2), "speech@v100": 4.0 * (hour // 2 % 2)}
        for hour in list(memory.usage)[-24:]
    }
    view = cluster_with(now, waiting=(spot("s1", 2), spot("s2", 1)))

    plan = Gfs(Fifo(backfill=True)).decide(replace(view, memory=replace(memory, usage=usage)))

    assert started(plan) == {"s1"}
    assert plan.numbers["spot_quota"] == 2.0


@pytest.mark.parametrize(("broken_on", "goes_to"), [(0, 1), (1, 0)])
def test_a_spot_job_goes_to_the_node_with_fewer_evictions(broken_on: int, goes_to: int) -> None:
    now, nodes = 40 * HOUR, parse_cluster("2x4:v100").nodes
    broken = PromisedHour(now - 60, "v100", (nodes[broken_on].id,), kept=False)
    kept = (PromisedHour(now - 60, "v100", (node.id,), kept=True) for node in nodes for _ in "abc")
    memory = replace(known(0.0, now), hours=(broken, *kept))
    view = cluster_with(now, waiting=(spot("s", 1, now),))

    plan = Gfs(Fifo()).decide(replace(view, memory=memory))

    on = plan.changes[JobId("s")]
    assert on is not None
    assert on.slices[0].node == nodes[goes_to].id


@pytest.mark.parametrize(("beside", "goes_to"), [("spot", 1), ("firm", 0)])
def test_a_spot_job_goes_where_least_is_free_then_where_spot_jobs_are(
    beside: str, goes_to: int
) -> None:
    now = 40 * HOUR
    other = spot("b", 2) if beside == "spot" else firm("b", 2)
    for mask, node in ((0b0011, goes_to), (0b0111, 0)):
        view = cluster_with(
            now, (firm("a", mask.bit_count()), 0, mask), (other, 1, 0b0011), waiting=(spot("s", 1),)
        )
        began = {"b": now - 60.0} if beside == "spot" else {}
        memory = known(0.0, now)
        there = SpotRun("v100", (view.cluster.nodes[1].id,), now - 60.0)
        memory = replace(memory, runs=dict.fromkeys(map(JobId, began), there))

        on = Gfs(Fifo()).decide(replace(view, memory=memory)).changes[JobId("s")]

        assert on is not None
        assert on.slices[0].node == view.cluster.nodes[node].id


def test_however_many_spot_jobs_are_beside_it_a_spot_job_goes_where_least_is_free() -> None:
    now = 40 * HOUR
    held = [(spot(f"b{i}", 1), 1, 1 << i) for i in range(4)]
    view = cluster_with(
        now, (firm("a", 5), 0, 0b11111), *held, waiting=(spot("s", 1),), cluster="2x8:v100"
    )
    there = SpotRun("v100", (view.cluster.nodes[1].id,), now - 60.0)
    memory = replace(known(0.0, now), runs={job.id: there for job, _, _ in held})

    on = Gfs(Fifo()).decide(replace(view, memory=memory)).changes[JobId("s")]

    assert on is not None
    assert on.slices[0].node == view.cluster.nodes[0].id


@pytest.mark.parametrize(("cores", "goes_to"), [(16.0, 0), (8.0, 1)])
def test_a_spot_job_goes_only_where_it_has_as_many_cores(cores: float, goes_to: int) -> None:
    """The policy inside chose a node with four cores for each GPU."""
    now, machines = 40 * HOUR, parse_cluster("2x4:v100").nodes
    cluster = Cluster(
        tuple(replace(n, cpus=c) for n, c in zip(machines, (cores, 16.0), strict=True))
    )
    beside = (firm("a", 2), 0, 0b0011)
    view = cluster_with(now, beside, waiting=(spot("s", 2),), cluster=cluster)
    inner = PlacedOn(cluster.nodes[1].id)

    on = Gfs(inner).decide(replace(view, memory=known(0.0, now))).changes[JobId("s")]

    assert on is not None
    assert on.slices[0].node == cluster.nodes[goes_to].id


def test_a_policy_that_chooses_nodes_itself_is_left_its_choice() -> None:
    now = 40 * HOUR
    view = cluster_with(now, (firm("a", 2), 0, 0b0011), waiting=(spot("s", 2),))
    inner = PlacedOn(view.cluster.nodes[1].id, about=replace(Fifo().about, ties=Ties.NONE))

    on = Gfs(inner).decide(replace(view, memory=known(0.0, now))).changes[JobId("s")]

    assert on is not None
    assert on.slices[0].node == view.cluster.nodes[1].id


def test_an_eviction_of_the_last_hour_weighs_more_than_three_of_today() -> None:
    # 1 - 0.01 x 2 against 1 - 0.01 x 2^0.6; those of yesterday do not count.
    now, (first, second) = 40 * HOUR, (node.id for node in parse_cluster("2x4:v100").nodes)
    at = {first: (0.5,), second: (1.5, 2.0, 23.0, *[24.5] * 9)}
    broken = tuple(
        PromisedHour(now - ago * HOUR, "v100", (node,), kept=False)
        for node, hours in at.items()
        for ago in hours
    )
    kept = tuple(PromisedHour(now - 60.0, "v100", (first, second), kept=True) for _ in range(99))
    view = cluster_with(now, waiting=(spot("s", 1, now),))

    plan = Gfs(Fifo()).decide(replace(view, memory=replace(known(0.0, now), hours=broken + kept)))

    on = plan.changes[JobId("s")]
    assert on is not None
    assert on.slices[0].node == second
    assert isinstance(plan.memory, GfsMemory)
    assert len(plan.memory.hours) == 4 + 99


def test_room_on_two_nodes_is_made_on_both() -> None:
    now = 40 * HOUR
    held = [(firm("f0", 2), 0, 0b0011), (spot("s0", 2), 0, 0b1100)]
    held += [(firm("f1", 2), 1, 0b0011), (spot("s1", 2), 1, 0b1100)]
    wants = replace(firm("wants", 4, now), demand=Demand(4, nodes=2))
    view = cluster_with(now, *held, waiting=(wants,))

    plan = Gfs(Fifo()).decide(replace(view, memory=known(4.0, now, {"s0": 0.0, "s1": 0.0})))

    assert (stopped(plan), started(plan)) == ({"s0", "s1"}, {"wants"})


def test_nobody_gives_way_to_who_would_not_start_even_so() -> None:
    now = 40 * HOUR
    view = cluster_with(
        now, (firm("firm", 2), 0, 0b0011), (spot("s", 2), 0, 0b1100), waiting=(firm("w", 12, now),)
    )

    plan = Gfs(Fifo()).decide(replace(view, memory=known(2.0, now, {"s": 0.0})))

    assert not plan.changes


def test_hours_are_kept_whole_or_when_the_job_ends() -> None:
    now = 10.5 * HOUR
    view = cluster_with(now, (spot("s", 2), 0, 0b11))

    plan = Gfs(Fifo()).decide(
        replace(view, memory=known(0.0, now, {"s": 8.0 * HOUR, "ended": 10.2 * HOUR}))
    )

    assert isinstance(plan.memory, GfsMemory)
    assert plan.memory.total == PromiseRecord(0, 3)
    assert plan.memory.runs[JobId("s")].counted == 2


def test_who_asks_is_told_what_is_promised_and_how_well_it_was_kept() -> None:
    now = 40 * HOUR
    view = cluster_with(now, (spot("s", 2), 0, 0b11))
    memory = replace(known(0.0, now, {"s": now - 60}), total=PromiseRecord(1, 9))

    plan = Gfs(Fifo()).decide(replace(view, memory=memory, asked=frozenset({JobId("s")})))

    assert plan.reasons[JobId("s")] == (
        "spot: an hour without a stop with probability 0.9; 9 of 10 such hours were kept"
    )


def test_the_quota_shrinks_after_evictions_and_once_an_hour_at_most() -> None:
    now = 40 * HOUR
    node = parse_cluster("2x4:v100").nodes[0].id
    broken = tuple(
        PromisedHour(now - 60, "v100", (node,), kept=kept) for kept in (False, True, True, True)
    )
    memory = replace(known(0.0, now), hours=broken, since={"v100": now - 2 * HOUR})
    view = cluster_with(now, waiting=(spot("s", 8, now),))

    plan = Gfs(Fifo()).decide(replace(view, memory=memory))

    assert isinstance(plan.memory, GfsMemory)
    assert plan.memory.eta["v100"] == pytest.approx(0.4)
    again = Gfs(Fifo()).decide(replace(view, now=now + 300.0, memory=plan.memory))
    assert isinstance(again.memory, GfsMemory)
    assert again.memory.eta["v100"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("since", "waits", "factor"),
    [
        (10.0, 2.0, 1.5),  # three hours were kept in the last four
        (10.0, 0.9, 1.0),
        (0.9, 2.0, 1.0),  # it changed in this hour
    ],
)
def test_the_factor_follows_the_last_four_hours_of_its_kind(
    since: float, waits: float, factor: float
) -> None:
    now = 40 * HOUR
    node = parse_cluster("2x4:v100").nodes[0].id
    hours = [(4.1, "v100", False), (1.0, "t4", False), *[(1.0, "v100", True)] * 3]
    known_hours = tuple(PromisedHour(now - ago * HOUR, k, (node,), kept=x) for ago, k, x in hours)
    memory = replace(known(8.0, now), hours=known_hours, since={"v100": now - since * HOUR})
    view = cluster_with(now, waiting=(spot("s", 8, now - waits * HOUR),))

    plan = Gfs(Fifo()).decide(replace(view, memory=memory))

    assert isinstance(plan.memory, GfsMemory)
    assert plan.memory.eta.get("v100", 1.0) == pytest.approx(factor)
    assert plan.memory.since["v100"] == (now if factor != 1.0 else now - since * HOUR)


@pytest.mark.parametrize(
    "wrong",
    [
        {"promise": 0.4},
        {"promise": 1.0},
        {"hours": 0},
        {"hours": 25},
        {"interval": 0.0},
        {"forecast": "month"},
    ],
)
def test_promises_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="gfs"):
        Gfs(Fifo(), **wrong)
    usual = Gfs(Fifo())
    assert (usual.promise, usual.hours, usual.forecast, usual.interval) == (0.9, 1, "week", 300.0)
    assert Gfs(Fifo(), interval=1.0).interval == 1.0


def test_usage_is_remembered_as_the_most_of_each_hour_and_goes_on_where_nothing_happens() -> None:
    memory: object = None
    for at, gpus in ((0.5, 3), (0.75, 2), (3.5, 1)):
        held = (firm(f"{gpus}", gpus), 0, (1 << gpus) - 1)
        memory = Gfs(Fifo()).decide(replace(cluster_with(at * HOUR, held), memory=memory)).memory

    assert isinstance(memory, GfsMemory)
    used = [memory.usage[hour]["vision@v100"] for hour in range(4)]
    assert used == [3.0, 2.0, 2.0, 2.0]
    assert memory.level == {"vision@v100": 1.0}


def test_usage_of_four_weeks_is_remembered_however_long_nothing_happened() -> None:
    first = Gfs(Fifo()).decide(cluster_with(0.0, (firm("a", 3), 0, 0b0111)))
    later = cluster_with(1008 * HOUR, (firm("b", 1), 0, 0b0001))

    memory = Gfs(Fifo()).decide(replace(later, memory=first.memory)).memory

    assert isinstance(memory, GfsMemory)
    assert sorted(memory.usage) == list(range(337, 1009))


def test_guaranteed_jobs_do_not_wait_for_spot_jobs_and_most_hours_are_kept() -> None:
    jobs = [(spot(f"s{i}", 2, 60.0 * i), Truth(3 * HOUR)) for i in range(24)]
    for day in range(6):
        at = day * 24 * HOUR + 6 * HOUR
        jobs += [(firm(f"f{day}-{i}", 2, at + 60.0 * i), Truth(4 * HOUR)) for i in range(3)]
    trace = Trace("mixed", tuple(sorted(jobs, key=lambda pair: pair[0].submitted)))

    outcome = weft.simulate(trace, "gfs|fifo", "2x4:v100").outcomes["gfs|fifo"][0]

    rows = [i for i, (job, _) in enumerate(trace.jobs) if not job.spot]
    waited = outcome.per_job.start_s[rows] - outcome.per_job.submit_s[rows]
    assert waited.max() < 1.0
    assert outcome.metrics["finished"] == len(jobs)


def test_hours_of_spot_jobs_are_counted_in_results() -> None:
    jobs = [(spot("long", 8), Truth(2.5 * HOUR)), (firm("short", 8, 1.5 * HOUR), Truth(HOUR))]
    trace = Trace("two", tuple(jobs))

    outcome = weft.simulate(trace, "gfs|fifo", "2x4:v100").outcomes["gfs|fifo"][0]

    assert outcome.metrics["spot_hours_kept"] == pytest.approx(3 / 4)  # 1, broken; 1, its end
    assert outcome.metrics["guaranteed_wait_h"] == pytest.approx(0.0, abs=0.02)
    assert outcome.metrics["spot_wait_h"] >= 1.0
