"""Virtual clusters: who runs where, who gives way, what is refused, and what failures do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import weft
from weft.core.errors import InvalidConfig
from weft.core.events.event import Finished, NodeDown, NodeUp, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice, Tier
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.policies.fifo import Fifo
from weft.testing import view_of
from weft_papers.hived.wrapper import Hived, read_content

NODES = {"a@node": 1.0, "b@node": 1.0}


def job(name: str, tenant: str, gpus: int = 1, **more: object) -> Job:
    return Job(JobId(name), demand=Demand(gpus), tenant=tenant, **more)  # type: ignore[arg-type]


def hived(cells: Mapping[str, float] = NODES, **more: object) -> Hived:
    return Hived(Fifo(), cells, **more)  # type: ignore[arg-type]


def nodes_of(on: Allocation | None) -> set[str]:
    return set() if on is None else {part.node for part in on.slices}


def run(policy: Policy, cluster: str = "2x8:v100") -> Scheduler:
    return Scheduler(policy, parse_cluster(cluster))


def submit(scheduler: Scheduler, *jobs: Job, at: float = 0.0) -> dict[JobId, Allocation]:
    scheduler.step(at, [Submitted(job) for job in jobs])
    return scheduler.view(at).held()


def test_many_small_jobs_of_one_tenant_do_not_keep_a_large_one_of_another_waiting() -> None:
    small = [job(f"a{i}", "a") for i in range(16)]
    view = view_of("2x8:v100", *small, job("b", "b", 8))

    plan = hived().decide(view)

    held = view.after(plan)
    assert len(held) == 9
    assert len(nodes_of(held[JobId("b")])) == 1
    assert {n for name, on in held.items() if name != "b" for n in nodes_of(on)}.isdisjoint(
        nodes_of(held[JobId("b")])
    )
    assert plan.reasons[JobId("a15")] == (
        "waits for 1 GPU in the virtual cluster of tenant 'a': 8 of its 8 GPUs are in use"
    )


def test_opportunistic_jobs_use_idle_cells_and_give_way_to_their_owner() -> None:
    loose = job("loose", "a", 8, tier=Tier.OPPORTUNISTIC, priority=-1.0)
    scheduler = run(hived())
    held = submit(scheduler, job("own", "a", 8), loose)
    assert nodes_of(held[JobId("own")]).isdisjoint(nodes_of(held[JobId("loose")]))

    plan = scheduler.propose(10.0)
    assert not plan.changes
    scheduler.step(10.0, [Submitted(job("mine", "b", 2))])

    held = scheduler.view(10.0).held()
    assert set(held) == {"own", "mine"}
    assert "loose" in scheduler.state.table


def test_a_cell_is_bound_where_the_fewest_have_to_give_way() -> None:
    loose = [job(f"l{i}", "guest", 4) for i in range(3)]
    scheduler = run(hived({"a@node": 1.0}), "3x4:v100")
    submit(scheduler, *loose[:2])

    held = submit(scheduler, job("own", "a", 4), at=1.0)

    assert set(held) == {"l0", "l1", "own"}


def test_a_tenant_without_cells_and_without_leave_to_be_stopped_never_enters_others() -> None:
    view = view_of("2x8:v100", job("x", "guest", 1, preemptible=False))

    assert not view.after(hived().decide(view))


def test_a_job_larger_than_its_virtual_cluster_is_rejected() -> None:
    view = view_of("2x8:v100", job("big", "a", 16), job("next", "a", 8))

    plan = hived().decide(view)

    assert plan.rejected == {"big": "it asks for 16 GPUs; the virtual cluster of tenant 'a' has 8"}
    assert "next" in view.after(plan)


def test_cells_below_and_above_a_node_keep_their_shape() -> None:
    levels = {"v100": "switch*2 socket*2 node*2 rack*2"}
    cells = {"a@rack": 1.0, "b@socket": 1.0, "c@switch": 1.0, "d@gpu": 2.0}
    gangs = [job("ja", "a", 16), job("jb", "b", 4), job("jc", "c", 2), job("jd", "d", 2)]
    view = view_of("4x8:v100", *gangs)

    held = view.after(hived(cells, levels=levels).decide(view))

    assert {name: on.gpus for name, on in held.items()} == {"ja": 16, "jb": 4, "jc": 2, "jd": 2}
    assert nodes_of(held[JobId("ja")]) == {"v100-0", "v100-1"}
    assert held[JobId("jb")].slices[0].gpus in ((0, 1, 2, 3), (4, 5, 6, 7))
    assert held[JobId("jc")].slices[0].gpus[0] % 2 == 0
    assert len(held[JobId("jd")].slices) == 1  # two cells on one machine are one slice


def test_levels_come_from_the_topology_where_a_machine_tells_it() -> None:
    policy = hived({"a@socket": 3.0, "b@switch": 2.0})

    assert policy.object_to(parse_cluster("2x8:v100@dgx-1v")) == ""
    assert "has no level 'socket'" in policy.object_to(parse_cluster("2x8:v100"))


def test_a_pinned_cell_stays_where_it_is() -> None:
    levels = {"v100": "socket*4 node*2"}
    policy = hived({"b@node": 1.0}, pinned={"a": "v100-1:4-7"}, levels=levels)
    view = view_of("2x8:v100", job("ja", "a", 4), job("jb", "b", 8))

    held = view.after(policy.decide(view))

    assert held[JobId("ja")].slices[0].node == "v100-1"
    assert held[JobId("ja")].slices[0].gpus == (4, 5, 6, 7)
    assert nodes_of(held[JobId("jb")]) == {"v100-0"}


def test_jobs_of_higher_priority_choose_first_in_their_virtual_cluster() -> None:
    view = view_of("2x8:v100", job("low", "a", 8), job("high", "a", 8, priority=1.0))

    assert set(view.after(hived().decide(view))) == {"high"}
    assert set(view.after(hived(priorities=False).decide(view))) == {"low"}


# ---- what is refused


@pytest.mark.parametrize(
    ("cells", "more", "cluster", "message"),
    [
        ({"a@node": 2.0, "b@node": 1.0}, {}, "2x8:v100", "a@node=2 and b@node=1: 3 v100 cells"),
        ({"a@rack": 1.0}, {}, "2x8:v100", "v100 has no level 'rack'; it has gpu, node"),
        ({"a@t4.node": 1.0}, {}, "2x8:v100", "no machines of kind 't4'"),
        ({"a@node": 1.0}, {}, "1x4:t4+1x8:a100", "names no kind"),
        ({"a@v100.node": 1.0}, {"levels": {"v100": "node*4"}}, "1x8:v100", "nodes have 8"),
        ({}, {"pinned": {"a": "v100-9"}}, "2x8:v100", "pinned: a: there is no node 'v100-9'"),
        ({}, {"pinned": {"a": "v100-0:1-2"}}, "2x8:v100", "v100-0:1-2 is not one cell"),
        ({}, {"pinned": {"a": "v100-0", "b": "v100-0"}}, "2x8:v100", "pinned already"),
        ({"a@node": 2.0}, {"pinned": {"b": "v100-0:0"}}, "2x8:v100", "only 1 are left"),
    ],
)
def test_an_assignment_that_does_not_fit_is_refused_with_the_field_at_fault(
    cells: dict[str, float], more: dict[str, dict[str, str]], cluster: str, message: str
) -> None:
    policy = Hived(Fifo(), cells, more.get("levels", {}), more.get("pinned", {}))

    assert message in policy.object_to(parse_cluster(cluster))
    with pytest.raises(InvalidConfig, match="hived"):
        weft.simulate(Trace("t", ((job("x", "a"), Truth(1.0)),)), policy, cluster)


@pytest.mark.parametrize(
    ("cells", "levels", "message"),
    [
        ({"a": 1.0}, {}, "names no cells of a tenant"),
        ({"a@node": 0.5}, {}, "is not a number of cells"),
        ({"a@node": 1.0}, {"v100": "node"}, "'node' is no level"),
        ({"a@node": 1.0}, {"v100": "switch*2"}, "has no level `node`"),
        ({"a@node": 1.0}, {"v100": "node*2 node*2"}, "names a level twice"),
    ],
)
def test_what_cannot_be_read_is_refused_at_once(
    cells: dict[str, float], levels: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Hived(Fifo(), cells, levels)


def test_a_file_says_the_same_as_parameters() -> None:
    content = {
        "levels": {"v100": {"switch": 2, "node": 4}},
        "virtual_clusters": {"a": {"v100": {"node": 1, "switch": 2}}, "b": {"pinned": ["n1"]}},
    }

    assert read_content(content) == {
        "cells": {"a@v100.node": 1.0, "a@v100.switch": 2.0},
        "levels": {"v100": "switch*2 node*4"},
        "pinned": {"b": "n1"},
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"the file is \[\], expected fields"),
        ({"clusters": {}}, "unknown field 'clusters'"),
        ({"virtual_clusters": {}}, "virtual_clusters: there is none"),
        ({"virtual_clusters": {"a": {"node": "two"}}}, "virtual_clusters.a.node is 'two'"),
        ({"virtual_clusters": {"a": {"v100": {"node": -1}}}}, r"a.v100.node is -1"),
        ({"virtual_clusters": {"a": {"pinned": "n1"}}}, "a.pinned is 'n1', expected a list"),
        ({"virtual_clusters": {"a": {"node": 1}}, "levels": {"v100": {"node": 0}}}, "v100.node"),
    ],
)
def test_a_file_that_is_wrong_names_the_field(content: object, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        read_content(content)


def test_a_file_that_was_not_read_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="read where the policy is named"):
        build("policy", "hived:file=vcs.yaml|fifo")


# ---- failures


def test_a_virtual_cluster_loses_only_cells_that_nothing_healthy_is_left_for() -> None:
    scheduler = run(hived(), "2x8:v100")
    scheduler.step(0.0, [NodeDown(NodeId("v100-0"))])

    held = submit(scheduler, job("ja", "a", 8), job("jb", "b", 8), at=1.0)

    assert {name: nodes_of(on) for name, on in held.items()} == {"ja": {"v100-1"}}
    node = parse_cluster("2x8:v100").nodes[0]
    scheduler.step(2.0, [NodeUp(node)])
    assert set(scheduler.view(2.0).held()) == {"ja", "jb"}


def test_who_runs_when_virtual_clusters_are_introduced_goes_on() -> None:
    scheduler = run(Fifo(), "3x8:v100")
    before = submit(scheduler, job("ja", "a", 6), job("jb", "b", 6), job("jc", "guest", 8))

    scheduler.use(hived())
    after = submit(scheduler, job("ka", "a", 2), job("kb", "b", 8), at=1.0)

    assert {name: after[name] for name in before} == before
    assert nodes_of(after[JobId("ka")]) == nodes_of(before[JobId("ja")])
    assert "kb" not in after


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (3, 3), (6,)])
@pytest.mark.parametrize("pinned", [{}, {"b": "v100-0:0-3"}])
def test_who_may_not_be_stopped_goes_on_outside_its_cells(
    sizes: tuple[int, ...], pinned: dict[str, str]
) -> None:
    # When a and b get 4 GPUs each, a's jobs that may not be stopped hold 5 or 6, on b's as well.
    scheduler = run(Fifo(), "1x8:v100")
    stay = [job(f"s{i}", "a", gpus, preemptible=False) for i, gpus in enumerate(sizes)]
    before = submit(scheduler, *stay)
    cells = {"a@gpu": 4.0} if pinned else {"a@gpu": 4.0, "b@gpu": 4.0}

    scheduler.use(hived(cells, pinned=pinned))
    held = submit(scheduler, job("b", "b", 2), job("next", "a"), at=1.0)

    assert {name: held[name] for name in before} == before
    if not pinned:
        assert "b" in held
    after = submit(scheduler, job("late", "b", 2), at=2.0)
    assert {name: after[name] for name in before} == before
    for name in before:
        scheduler.step(3.0, [Finished(name, 1)])
    assert set(scheduler.view(3.0).held()) == {"b", "next", "late"}


def test_idle_cells_are_divided_by_weights_where_a_quota_inside_has_some() -> None:
    """Weighted max-min fairness among opportunistic jobs, as published; in order without it."""
    loose = [
        job(f"{tenant}{i}", tenant, tier=Tier.OPPORTUNISTIC, priority=-1.0)
        for tenant in ("x", "y")
        for i in range(6)
    ]
    view = view_of("2x3:v100", *loose)
    plain, weighted = (
        build("policy", f"hived:cells=a@node=2|{inner}fifo:backfill=true")
        for inner in ("", "quota:weights=x=1/y=2|")
    )

    in_order, shared = view.after(plain.decide(view)), view.after(weighted.decide(view))

    assert sum(name.startswith("x") for name in in_order) == 6
    assert sum(name.startswith("x") for name in shared) == 2
    assert sum(name.startswith("y") for name in shared) == 4


def test_a_cell_that_nobody_uses_any_more_moves_off_a_machine_that_went() -> None:
    scheduler = run(hived({"a@node": 1.0}))
    before = nodes_of(submit(scheduler, job("ja", "a", 8))[JobId("ja")])
    scheduler.step(1.0, [Finished(JobId("ja"), 1)])
    scheduler.step(2.0, [NodeDown(NodeId(name)) for name in before])

    held = submit(scheduler, job("ka", "a", 8), at=3.0)

    assert nodes_of(held.get(JobId("ka"))) == {"v100-0", "v100-1"} - before


class Generous:
    """Puts everybody on the first GPU of every node with more of the host than is usual."""

    about = About("generous", "nobody")

    def __init__(self) -> None:
        self.seen: dict[JobId, Allocation] = {}

    def decide(self, view: View) -> Plan:
        """Where nothing runs yet; else look at what does."""
        self.seen = view.held()
        nodes = () if self.seen else view.cluster.nodes
        on = Allocation(tuple(Slice(node.id, (0,), 3.0, 20.0) for node in nodes))
        return Plan({job.id: on for job in view.table.jobs} if nodes else {})


def test_a_policy_inside_sees_the_host_parts_that_it_gave() -> None:
    inner = Generous()
    scheduler = run(Hived(inner, {"a@gpu": 2.0}), "1x4:v100")
    (real,) = submit(scheduler, job("j", "a", 2))[JobId("j")].slices

    submit(scheduler, job("k", "a"), at=1.0)

    assert (len(real.gpus), real.cpus, real.mem_gb) == (2, 6.0, 40.0)
    held = inner.seen[JobId("j")].slices
    assert [(part.gpus, part.cpus, part.mem_gb) for part in held] == [((0,), 3.0, 20.0)] * 2
