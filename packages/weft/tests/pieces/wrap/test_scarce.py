"""Scarce GPUs are there for who needs them."""

from __future__ import annotations

import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.event import Submitted
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.pieces.wrap.scarce import Scarce
from weft.policies.fifo import Fifo
from weft.policies.las import Las
from weft.testing import cluster_of

OVERTAKING = Fifo(backfill=True)


def view_of(*jobs: tuple[str, int, tuple[str, ...], float], now: float = 0.0) -> View:
    """Four V100s before eight T4s; jobs as (name, GPUs, kinds, gpu_util)."""
    cluster = cluster_of("1x4:v100+2x4:t4")
    state = State(cluster)
    for name, gpus, kinds, use in jobs:
        hints = {"gpu_util": use} if use else {}
        state.fold(0.0, Submitted(Job(JobId(name), 0.0, Demand(gpus, kinds=kinds), hints=hints)))
    state.free.commit()
    return View(now, state.table, cluster, state.free)


def kinds_of(view: View, plan: Plan) -> dict[str, str]:
    return {
        str(job): view.cluster.kind_of(to) for job, to in plan.changes.items() if to is not None
    }


def test_who_can_run_elsewhere_does_and_leaves_the_scarce_kind_to_who_cannot() -> None:
    jobs = ("any", 4, (), 0.0), ("needs", 4, ("v100",), 0.0), ("busy", 4, (), 0.9)

    view = view_of(*jobs)
    assert kinds_of(view, OVERTAKING.decide(view)) == {"any": "v100", "busy": "t4"}
    view = view_of(*jobs)
    assert kinds_of(view, Scarce(OVERTAKING).decide(view)) == {
        "any": "t4",
        "needs": "v100",
        "busy": "t4",
    }


def test_who_makes_use_of_the_scarce_kind_may_have_it() -> None:
    view = view_of(("busy", 4, (), 0.9))

    assert kinds_of(view, Scarce(OVERTAKING).decide(view)) == {"busy": "v100"}


def test_who_has_waited_for_long_may_have_any() -> None:
    jobs = ("a", 4, (), 0.0), ("b", 4, (), 0.0), ("c", 4, (), 0.0)

    young = view_of(*jobs, now=10.0)
    plan = Scarce(OVERTAKING, patience_s=600.0).decide(young)
    assert sorted(kinds_of(young, plan).values()) == ["t4", "t4"]
    assert plan.wake_at == 600.0
    old = view_of(*jobs, now=600.0)
    assert "v100" in kinds_of(old, Scarce(OVERTAKING, patience_s=600.0).decide(old)).values()


def test_the_next_look_is_the_sooner_of_its_own_and_of_the_policy_inside() -> None:
    jobs = ("a", 4, (), 0.0), ("b", 4, (), 0.0), ("c", 4, (), 0.0)

    looks = [
        Scarce(Las(quantum=quantum), patience_s=600.0).decide(view_of(*jobs, now=10.0)).wake_at
        for quantum in (100.0, 9000.0)
    ]

    assert looks == [110.0, 600.0]


def test_kinds_may_be_named() -> None:
    view = view_of(("any", 4, (), 0.0))

    assert kinds_of(view, Scarce(OVERTAKING, kinds="t4").decide(view)) == {"any": "v100"}


@pytest.mark.parametrize("bad", [{"patience_s": -1.0}, {"busy": 2.0}])
def test_scarce_refuses_numbers_that_mean_nothing(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match="scarce"):
        Scarce(Fifo(), **bad)  # type: ignore[arg-type]
