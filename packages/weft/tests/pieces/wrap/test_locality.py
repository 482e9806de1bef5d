"""Gangs wait for few nodes, and for fewer of them as time goes by."""

from __future__ import annotations

import pytest

import weft
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.pieces.wrap.locality import TRIES, Locality
from weft.policies.fifo import Fifo
from weft.testing import cluster_of

GANG, SMALL = JobId("gang"), JobId("small")


def crowded(waited: float, taken: int = 2, *more: Job) -> View:
    """Four nodes with two free GPUs each; a gang of four, a job of one behind it, and more."""
    cluster = cluster_of("4x4:v100")
    state = State(cluster)
    for i, node in enumerate(cluster.nodes):
        name = JobId(f"busy{i}")
        state.fold(0.0, Submitted(Job(name, 0.0, Demand(taken))))
        on = Allocation((Slice(NodeId(node.id), tuple(range(taken))),))
        state.fold(0.0, Decided(i + 1, {name: on}))
        state.fold(0.0, Started(name, 1))
    for submitted in (Job(GANG, 0.0, Demand(4)), Job(SMALL, 0.0, Demand(1)), *more):
        state.fold(submitted.submitted, Submitted(submitted))
    state.free.commit()
    return View(waited, state.table, cluster, state.free)


def test_a_gang_waits_for_one_node_and_takes_two_after_a_while() -> None:
    policy = Locality(Fifo(backfill=True), relax_s=600.0)

    first, later = policy.decide(crowded(0.0)), policy.decide(crowded(600.0))

    assert set(first.changes) == {SMALL}
    assert first.wake_at == 600.0
    to = later.changes[GANG]
    assert to is not None
    assert len(to.slices) == 2


def test_a_gang_may_have_twice_as_many_nodes_with_every_step() -> None:
    policy = Locality(Fifo(backfill=True), relax_s=600.0, rounds=5)

    waits = [GANG in policy.decide(crowded(at, taken=3)).changes for at in (0.0, 600.0, 1200.0)]

    assert waits == [False, False, True]


def test_the_next_look_is_when_the_first_gang_may_have_more_nodes() -> None:
    later = Job(JobId("later"), 500.0, Demand(4))

    plan = Locality(Fifo(backfill=True), relax_s=600.0).decide(crowded(550.0, 2, later))

    assert plan.wake_at == 600.0


def test_none_of_very_many_gangs_is_spread_too_soon() -> None:
    gangs = [Job(JobId(f"gang{i}"), 0.0, Demand(4)) for i in range(4 * TRIES)]

    plan = Locality(Fifo(backfill=True), relax_s=600.0).decide(crowded(0.0, 2, *gangs))

    assert set(plan.changes) == {SMALL}


def test_steps_of_less_than_a_second_are_taken() -> None:
    assert Locality(Fifo(), relax_s=0.5).relax_s == 0.5


def test_after_all_rounds_any_nodes_will_do() -> None:
    policy = Locality(Fifo(backfill=True), relax_s=600.0, rounds=1)

    assert GANG in policy.decide(crowded(600.0)).changes


def test_jobs_all_end_and_none_waits_for_ever() -> None:
    result = weft.compare(
        "philly", "locality|fifo:backfill=true", "4x4:v100", jobs=40, load=1.2, processes=1
    )

    metrics = next(iter(result.outcomes.values()))[0].metrics
    assert metrics["finished"] == 40


@pytest.mark.parametrize("bad", [{"relax_s": 0.0}, {"rounds": 0}])
def test_locality_refuses_numbers_that_mean_nothing(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match="locality"):
        Locality(Fifo(), **bad)  # type: ignore[arg-type]
