"""Who cannot be stopped does not keep a larger job waiting for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, ClassVar

import numpy as np
import pytest

from weft.app.simulate.wiring import wire
from weft.app.simulate.world import build_replayed_world
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.events.job_end import Ended
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import INTERVAL, PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice, Tier
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.core.state.table import JobTable
from weft.pieces.wrap.easy import Easy
from weft.policies.fifo import Fifo
from weft.predict.hinted import Hinted

OVERTAKING = Fifo(backfill=True)
LARGE, SMALL = JobId("large"), JobId("small")


def plain(name: str, gpus: int, at: float = 0.0, length: float = inf) -> Job:
    hints = {} if length == inf else {"duration_s": length}
    return Job(JobId(name), at, Demand(gpus), preemptible=False, hints=hints)


def waiting_for(*jobs: Job, now: float, left: float = 900.0) -> View:
    """These wait on a node of 4, two devices of which one has that has `left` seconds to go."""
    state = State(parse_cluster("1x4:v100"))
    state.fold(0.0, Submitted(plain("runs", 2, 0.0, now + left)))
    on = Allocation((state.free.slice_of(0, 0b0011),))
    state.fold(0.0, Decided(1, {JobId("runs"): on}))
    state.fold(0.0, Started(JobId("runs"), 1))
    for job in jobs:
        state.fold(job.submitted, Submitted(job))
    return View(now, state.table, state.cluster, state.free, Knowledge(Hinted()))


def started(plan: Plan) -> set[JobId]:
    return {job for job, to in plan.changes.items() if to is not None}


def test_who_came_later_and_may_stay_for_long_does_not_start_where_one_waits_for_long() -> None:
    jobs = plain("large", 4), plain("small", 1, 100.0)

    without, kept = (
        p.decide(waiting_for(*jobs, now=700.0)) for p in (OVERTAKING, Easy(OVERTAKING))
    )

    assert (started(without), started(kept)) == ({SMALL}, set())
    assert kept.blockers[SMALL] is Blocker.KEPT
    assert kept.reasons[SMALL] == (
        "waits for 1 GPU; what is free is kept for large, which came before it and waits for 4 GPUs"
    )


def test_the_reason_names_no_job_of_another_tenant_and_is_taken_back() -> None:
    jobs = plain("large", 4), replace(plain("small", 1, 100.0), tenant="other")
    view = waiting_for(*jobs, now=700.0)
    policy = Easy(OVERTAKING)

    first = policy.decide(view)
    again = policy.decide(replace(view, memory=first.memory))
    view.table.set_priority(view.table.row(SMALL), 1.0, Tier.GUARANTEED)
    later = policy.decide(replace(view, memory=again.memory))

    assert "kept for a job of another tenant, which" in first.reasons[SMALL]
    assert SMALL not in again.reasons  # said once
    assert later.reasons[SMALL] == ""
    assert started(later) == {SMALL}


def test_an_opportunistic_job_uses_what_is_kept_even_if_it_cannot_save() -> None:
    small = replace(plain("small", 1, 100.0), tier=Tier.OPPORTUNISTIC)

    assert started(Easy(OVERTAKING).decide(waiting_for(plain("large", 4), small, now=700.0))) == {
        SMALL
    }


@pytest.mark.parametrize(
    ("small", "now"),
    [
        (plain("small", 1, 100.0, 500.0), 700.0),  # it ends before the one that runs
        (Job(SMALL, 100.0, Demand(1)), 700.0),  # it can be stopped
        (plain("small", 1, 100.0), 300.0),  # nobody has waited for long yet
    ],
)
def test_others_use_what_is_kept_meanwhile(small: Job, now: float) -> None:
    view = waiting_for(plain("large", 4), small, now=now)

    assert started(Easy(OVERTAKING).decide(view)) == {SMALL}


@pytest.mark.parametrize("length", [0.5, 800.0])
def test_predictions_are_not_trusted_for_ever(length: float) -> None:
    small = plain("small", 1, 100.0, length)

    view = waiting_for(plain("large", 4), small, now=6 * 600.0)

    assert started(Easy(OVERTAKING).decide(view)) == set()


def test_who_came_first_or_is_more_important_is_not_held_back() -> None:
    first = waiting_for(plain("small", 1), plain("large", 4, 1.0), now=700.0)
    urgent = Job(SMALL, 100.0, Demand(1), preemptible=False, priority=1.0)

    assert started(Easy(OVERTAKING).decide(first)) == {SMALL}
    after = waiting_for(plain("large", 4), urgent, now=700.0)
    assert started(Easy(OVERTAKING).decide(after)) == {SMALL}
    filler = replace(plain("large", 4), tier=Tier.OPPORTUNISTIC)
    beside = waiting_for(filler, plain("small", 1, 100.0), now=700.0)
    assert started(Easy(OVERTAKING).decide(beside)) == {SMALL}


def on_two_nodes(*runs: tuple[int, int, Job], large: int, now: float = 700.0) -> View:
    """Jobs that run on `(node, mask)` of two nodes of 4; `large` GPUs are waited for, then one."""
    state = State(parse_cluster("2x4:v100"))
    for i, (node, mask, job) in enumerate(runs):
        state.fold(0.0, Submitted(job))
        on = Allocation((state.free.slice_of(node, mask),))
        state.fold(0.0, Decided(i + 1, {job.id: on}))
        state.fold(0.0, Started(job.id, 1))
    for job in (plain("large", large), plain("small", 1, 1.0)):
        state.fold(job.submitted, Submitted(job))
    return View(now, state.table, state.cluster, state.free, Knowledge(Hinted()))


def test_only_the_devices_that_it_needs_are_kept() -> None:
    runs = (0, 0b0111, plain("runs0", 3)), (1, 0b0011, plain("runs1", 2))

    plan = Easy(OVERTAKING).decide(on_two_nodes(*runs, large=4))

    assert started(plan) == {SMALL}  # on the other node: fewer have to leave this one


def test_what_is_kept_for_who_could_use_more_is_the_least_it_takes() -> None:
    elastic = Job(LARGE, demand=Demand(4, 4, 8), preemptible=False)
    view = waiting_for(elastic, plain("small", 1, 100.0), now=700.0)

    assert started(Easy(OVERTAKING).decide(view)) == set()


def test_devices_that_are_idle_are_nobodys_to_wait_for() -> None:
    # On node 0 one has to end, in long; on node 1 all four, soon. What is idle is on node 0.
    long = (0, 0b0001, plain("long", 1, 0.0, 9000.0))
    soon = [(1, 1 << i, plain(f"soon{i}", 1, 0.0, 800.0)) for i in range(4)]

    plan = Easy(OVERTAKING).decide(on_two_nodes(long, *soon, large=4))

    assert started(plan) == set()


def test_devices_of_jobs_that_can_be_stopped_are_as_good_as_idle() -> None:
    # Nobody has to end on node 0; on node 1 one has, and the rest is idle for "small".
    movable = (0, 0b1111, Job(JobId("movable"), 0.0, Demand(4)))
    firm = (1, 0b0001, plain("firm", 1))

    plan = Easy(OVERTAKING).decide(on_two_nodes(movable, firm, large=4))

    assert started(plan) == {SMALL}


class Counted:
    """A policy, and how often it was asked."""

    def __init__(self, inner: Policy) -> None:
        self.inner, self.asked = inner, 0

    @property
    def about(self) -> About:
        return self.inner.about

    def decide(self, view: View) -> Plan:
        self.asked += 1
        return self.inner.decide(view)


def test_who_asks_for_the_same_is_not_tried_one_after_the_other() -> None:
    policy = Counted(OVERTAKING)
    crowd = [plain(f"pair-{i}", 2, 100.0 + i) for i in range(9)]
    short, single = plain("short", 2, 200.0, 500.0), plain("single", 1, 201.0)
    view = waiting_for(plain("large", 4), *crowd, short, single, now=700.0)

    assert started(Easy(policy).decide(view)) == {JobId("short")}
    assert policy.asked == 2  # with the crowd, and without it


def waits(policy: Policy) -> float:
    """Hours that a job of all 8 GPUs waits among small ones that keep coming."""
    rng = np.random.default_rng(1)
    when = np.cumsum(rng.exponential(1800.0 / 8 / 0.95, 150)).tolist()
    pairs = [
        (plain(f"{i}", 1, at), Truth(float(rng.uniform(900.0, 2700.0))))
        for i, at in enumerate(when)
    ]
    pairs.append((plain("large", 8, 3600.0), Truth(3600.0)))
    trace = Trace("small ones", tuple(sorted(pairs, key=lambda pair: pair[0].submitted)))
    run = wire(build_replayed_world(trace, policy.about), parse_cluster("2x4:v100"), policy)
    run.driver.run()
    row = [job.id for job, _ in trace].index(LARGE)
    return float(run.physics.first_start[row] - 3600.0) / 3600.0


def test_small_jobs_that_keep_coming_do_not_starve_a_large_one() -> None:
    assert waits(Easy(OVERTAKING)) < 0.3 * waits(OVERTAKING)
    assert waits(Easy(Fifo())) == waits(Fifo())


class Spread(PointPredictor, NothingLearnt):
    """Quantiles of each job by name, as a table says."""

    label = "spread"
    asks = PredictorNeeds()
    left: ClassVar = {
        "a": {0.5: 100.0, 0.9: 400.0},
        "b": {0.5: 200.0, 0.9: 300.0},
        "small": {0.5: 150.0, 0.8: 300.0},
        "large": {0.5: 1e4, 0.8: 1e4, 0.9: 1e4},
        "runs": {0.5: 900.0},
        "short": {0.5: 0.5, 0.8: 0.5},
    }

    def remaining(self, table: JobTable, now: float) -> Floats:
        return self.quantiles(table, now, (0.5,))[:, 0]

    def quantiles(self, table: JobTable, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        return np.array([[self.left[job.id][quantile] for quantile in p] for job in table.jobs])

    def learn(self, ended: Ended) -> None:
        pass


@pytest.mark.parametrize(
    ("reserve", "backfill", "starts"),
    [(0.5, 0.5, True), (0.5, 0.8, False), (0.9, 0.8, True)],  # 150 <= 200 < 300 <= 400
)
def test_reservations_and_backfilling_go_by_quantiles(
    reserve: float, backfill: float, starts: bool
) -> None:
    state = State(parse_cluster("1x10:v100"))
    for i, (name, mask) in enumerate((("a", 0b1111), ("b", 0b11110000))):
        state.fold(0.0, Submitted(plain(name, 4)))
        on = Allocation((state.free.slice_of(0, mask),))
        state.fold(0.0, Decided(i + 1, {JobId(name): on}))
        state.fold(0.0, Started(JobId(name), 1))
    state.fold(0.0, Submitted(plain("large", 10)))
    state.fold(0.0, Submitted(plain("small", 2, 1.0)))
    view = View(700.0, state.table, state.cluster, state.free, Knowledge(Spread()))

    plan = Easy(OVERTAKING, reserve=reserve, backfill=backfill).decide(view)

    assert started(plan) == ({SMALL} if starts else set())


@pytest.mark.parametrize(("now", "starts"), [(3599.0, True), (3600.0, False)])
def test_after_six_times_the_patience_nobody_starts_on_what_is_kept(
    now: float, starts: bool
) -> None:
    view = waiting_for(plain("large", 4), plain("short", 1, 100.0), now=now)
    view = replace(view, knowledge=Knowledge(Spread()))

    assert (JobId("short") in started(Easy(OVERTAKING).decide(view))) is starts


def test_quantiles_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="quantiles between 0 and 1"):
        Easy(OVERTAKING, reserve=1.0)


def test_patience_below_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="patience_s"):
        Easy(OVERTAKING, patience_s=-1.0)


def beside_elastic(*jobs: Job, now: float) -> View:
    """These wait on a node of 4, one device of which a job has that can be stopped."""
    state = State(parse_cluster("1x4:v100"))
    state.fold(0.0, Submitted(Job(JobId("elastic"), 0.0, Demand(1))))
    state.fold(0.0, Decided(1, {JobId("elastic"): Allocation((state.free.slice_of(0, 0b0001),))}))
    state.fold(0.0, Started(JobId("elastic"), 1))
    for job in jobs:
        state.fold(job.submitted, Submitted(job))
    return View(now, state.table, state.cluster, state.free, Knowledge(Hinted()))


@pytest.mark.parametrize(("now", "starts"), [(700.0, {SMALL}), (3_700.0, set())])
def test_nothing_is_kept_while_only_jobs_that_can_be_stopped_are_in_the_way(
    now: float, starts: set[JobId]
) -> None:
    """A policy that does not stop them for the large job left the other GPUs idle meanwhile."""
    view = beside_elastic(plain("large", 4), plain("small", 1, 100.0, 2_000.0), now=now)

    assert started(Easy(OVERTAKING).decide(view)) == starts


def beside_a_gang(policy: str = "fifo:backfill=true", **later: Any) -> Plan:
    """A gang of 4 waits for two nodes of T4s, one GPU of which is free; an A100 node is idle."""
    nodes = (Node(NodeId("t1"), "t4", 2), Node(NodeId("t2"), "t4", 2), Node(NodeId("a1"), "z", 2))
    state = State(Cluster(nodes))
    state.fold(0.0, Submitted(plain("runs", 3)))
    on = Allocation((state.free.slice_of(0, 0b10), state.free.slice_of(1, 0b11)))
    state.fold(0.0, Decided(1, {JobId("runs"): on}))
    state.fold(0.0, Started(JobId("runs"), 1))
    jobs = plain("large", 4, 1.0), replace(plain("small", 1, 2.0), **later)
    for job in sorted(jobs, key=lambda job: job.submitted):
        state.fold(job.submitted, Submitted(job))
    view = View(10.0, state.table, state.cluster, state.free, Knowledge(Hinted()))
    inner: Policy = build("policy", policy)
    return Easy(inner).decide(view)


def nodes_of(plan: Plan) -> list[str]:
    on = plan.changes[SMALL]
    return [] if on is None else [part.node for part in on.slices]


def test_a_later_job_starts_where_no_earlier_one_waits() -> None:
    assert nodes_of(beside_a_gang()) == ["a1"]
    assert nodes_of(beside_a_gang(demand=Demand(1, kinds=("t4",)))) == ["t1"]  # it has no choice
    assert nodes_of(beside_a_gang(demand=Demand(1, kinds=("t4", "z")))) == ["a1"]
    assert nodes_of(beside_a_gang(priority=1.0)) == ["t1"]  # it is more important
    assert nodes_of(beside_a_gang(submitted=0.5)) == ["t1"]  # it came first


def test_a_job_that_the_policy_can_stop_starts_where_it_likes() -> None:
    assert nodes_of(beside_a_gang("srtf", preemptible=True)) == ["t1"]
    assert nodes_of(beside_a_gang(preemptible=True)) == ["a1"]  # this policy stops no job


def test_later_jobs_leave_the_node_that_an_earlier_one_gets_first() -> None:
    # Node 0 is free but for one job of 100 s, node 1 but for one of 9000 s.
    runs = (0, 0b0001, plain("soon", 1, 0.0, 800.0)), (1, 0b0001, plain("long", 1, 0.0, 9000.0))

    plan = Easy(OVERTAKING).decide(on_two_nodes(*runs, large=4, now=100.0))

    assert [part.node for part in plan.changes[SMALL].slices] == ["v100-1"]  # type: ignore[union-attr]


# ---- after a failure at the start


@pytest.mark.parametrize(
    ("bad", "busy", "node"),
    [
        ((), (), "v100-0"),
        (("v100-0",), (), "v100-1"),
        (("v100-0", "v100-1"), (), "v100-2"),
        (("v100-0",), ("v100-1", "v100-2"), "v100-0"),  # better than none
        (("v100-1",), (), "v100-0"),
    ],
)
def test_a_job_that_failed_at_its_start_is_tried_on_another_node(
    bad: tuple[str, ...], busy: tuple[str, ...], node: str
) -> None:
    state, knowledge = State(parse_cluster("3x2:v100")), Knowledge()
    for number, name in enumerate(busy):
        state.fold(0.0, Submitted(plain(name, 2)))
        held = Allocation((state.free.slice_of(state.cluster.index[NodeId(name)], 0b11),))
        state.fold(0.0, Decided(number + 1, {JobId(name): held}))
    job = plain("small", 2)
    state.fold(0.0, Submitted(job))
    for name in bad:
        where = state.cluster.index[NodeId(name)]
        knowledge.note_failed_start(job, Allocation((Slice(NodeId(name), (0, 1)),)))
        assert state.cluster.nodes[where].id == name

    view = View(0.0, state.table, state.cluster, state.free, knowledge)
    on = Easy(Fifo()).decide(view).changes[SMALL]

    assert on is not None and [part.node for part in on.slices] == [node]
    knowledge.forget(job)
    assert not knowledge.failed_on
