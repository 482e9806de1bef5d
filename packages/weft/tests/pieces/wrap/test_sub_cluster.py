"""A policy asked about some of the jobs: what the others hold is cut out of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.broken_policy import BrokenPolicy

from weft.core.errors import PlanError
from weft.core.events.event import Decided, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice, Tier
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.pieces.wrap.sub_cluster import cut_out, decide_among

NODE = NodeId("v100-0")


@dataclass(frozen=True, slots=True)
class Counting:
    """Gives every waiting job the first devices of a node, whoever holds them."""

    about = About("counting", "of this test")

    def decide(self, view: View) -> Plan:
        changes, at = {}, 0
        for row in map(int, np.flatnonzero(view.waiting())):
            job = view.job(row)
            gpus = range(at, at + job.demand.gpus)
            if at + job.demand.gpus > view.cluster.nodes[0].gpus - len(view.held()):
                break
            at += job.demand.gpus
            changes[job.id] = Allocation((view.free.slice_of(0, sum(1 << g for g in gpus)),))
        return Plan(changes)


def view_with(held: dict[str, tuple[tuple[int, ...], float]], *waiting: int) -> View:
    """A node of four devices: who holds which of them, and how many others wait for."""
    state = State(parse_cluster("1x4:v100"))
    for name, (gpus, share) in held.items():
        state.fold(0.0, Submitted(Job(JobId(name), demand=Demand(len(gpus), share=share))))
        part = state.free.slice_of(0, sum(1 << gpu for gpu in gpus), share)
        on = Allocation((part,), Sharing(share) if share < 1.0 else Sharing())
        state.fold(0.0, Decided(1, {JobId(name): on}))
    for number, gpus_wanted in enumerate(waiting):
        state.fold(0.0, Submitted(Job(JobId(f"w{number}"), demand=Demand(gpus_wanted))))
    return View(0.0, state.table, state.cluster, state.free)


def hiding(view: View, *names: str) -> View:
    return view.without(np.array([job.id in names for job in view.table.jobs]))


def test_what_hidden_jobs_hold_is_given_to_nobody_and_the_rest_in_its_real_numbers() -> None:
    view = view_with({"hidden": ((0, 2), 1.0)}, 2)

    plan = decide_among(Counting(), hiding(view, "hidden"))

    on = plan.changes[JobId("w0")]
    assert on is not None
    assert on.slices == (view.free.slice_of(0, 0b1010),)


def test_a_job_that_stays_where_it_is_does_not_change() -> None:
    view = view_with({"hidden": ((0,), 1.0), "seen": ((3,), 1.0)}, 1)
    cut = cut_out(hiding(view, "hidden"))

    inside = cut.view

    on = inside.holds(JobId("seen"))
    assert on is not None
    assert on.devices == ((NODE, (2,)),)
    assert [node.gpus for node in inside.cluster.nodes] == [3]
    assert cut.to_real_devices(Plan({JobId("seen"): on})).changes == {}


def test_who_shares_a_device_with_a_hidden_job_is_hidden_too() -> None:
    view = view_with({"hidden": ((0,), 0.5), "beside": ((0,), 0.5), "seen": ((1,), 0.5)})

    inside = cut_out(hiding(view, "hidden")).view

    assert [job.id for job in inside.table.jobs] == ["seen"]
    assert [node.gpus for node in inside.cluster.nodes] == [3]


@pytest.mark.parametrize("shareable", [True, False])
def test_who_shares_nothing_starts_beside_no_hidden_opportunistic_job(shareable: bool) -> None:
    state = State(parse_cluster("1x4:v100"))
    state.fold(0.0, Submitted(Job(JobId("hidden"), tier=Tier.OPPORTUNISTIC)))
    part = Slice(NODE, (0,))  # it takes nothing of the host, and nothing that the ledger counts
    on = Allocation((part,), Sharing(tier=Tier.OPPORTUNISTIC))
    state.fold(0.0, Decided(1, {JobId("hidden"): on}))
    state.fold(0.0, Submitted(Job(JobId("w"), shareable=shareable)))
    view = View(0.0, state.table, state.cluster, state.free)

    place = decide_among(Counting(), hiding(view, "hidden")).changes[JobId("w")]

    assert place is not None
    assert place.devices == ((NODE, (0 if shareable else 1,)),)


def test_a_policy_that_fails_with_nothing_hidden_still_fails() -> None:
    with pytest.raises(PlanError, match="a bug"):
        decide_among(BrokenPolicy(PlanError("a bug")), view_with({}, 1))


def test_fewer_free_devices_than_asked_for_are_no_slice() -> None:
    view = view_with({"a": ((0, 1, 2), 1.0)})

    with pytest.raises(PlanError, match="v100-0 has 1 GPU free, not 2"):
        view.free.slice(0, 2)
