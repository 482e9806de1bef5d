"""Gangs that ask for a number of nodes: what can be asked for, where they go, and other plans."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig, PlanError
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.rules import check_plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.pieces.pack import backfill
from weft.pieces.place.gangs import consolidate, fewest_nodes, in_gaps
from weft.stack.ask_policy import ask
from weft.testing.build import cluster_of, view_of

ABOUT = About("mine", "of this test")


def gang(name: str, gpus: int, nodes: int, *kinds: str) -> Job:
    return Job(JobId(name), demand=Demand(gpus, kinds=kinds, nodes=nodes))


def sizes(on: Allocation | None) -> list[int]:
    return [] if on is None else [len(part.gpus) for part in on.slices]


@dataclass(frozen=True, slots=True)
class Dense:
    """A policy that knows nothing of nodes: every job where it fits best, first come first."""

    about = ABOUT

    def decide(self, view: View) -> Plan:
        changes: dict[JobId, Allocation | None] = {}
        for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
            kind = view.cluster.kinds[0]
            node = view.free.best_fit(kind, job.demand.gpus)
            if on is None and node is not None:
                changes[job.id] = place = Allocation((view.free.slice(node, job.demand.gpus),))
                view.free.take(place)
        return Plan(changes)


@dataclass(frozen=True, slots=True)
class Moving:
    """A policy that moves the first job, wherever it is, onto the last node."""

    about = ABOUT

    def decide(self, view: View) -> Plan:
        first, on = view.table.jobs[0], view.table.allocations[0]
        if on is not None:
            view.free.give(on)
        place = view.free.slice(len(view.cluster.nodes) - 1, first.demand.gpus)
        return Plan({first.id: Allocation((place,))})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"gpus": 7, "nodes": 2}, "7 GPUs cannot be divided evenly among 2 nodes"),
        ({"gpus": 2, "max": 8, "nodes": 2}, "a job on a given number of nodes has one size"),
        ({"gpus": 0, "nodes": 2}, "a job without GPUs runs on one node"),
        ({"gpus": 2, "share": 0.5, "nodes": 2}, "only whole GPUs are divided among nodes"),
        ({"gpus": 1, "nodes": -1}, "-1 cannot be asked for"),
    ],
)
def test_nodes_that_gpus_cannot_be_divided_among_are_refused(
    asked: dict[str, float], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"nodes: .*{message}") as error:
        Demand(**asked)  # type: ignore[arg-type]

    assert "leave nodes out" in error.value.hint


def test_what_was_written_before_there_were_nodes_reads_the_same() -> None:
    assert "nodes" not in encode(Demand(8))
    assert decode(Demand, {"gpus": 8}) == Demand(8)
    assert decode(Demand, encode(Demand(8, nodes=2))) == Demand(8, nodes=2)


@pytest.mark.parametrize("place", [fewest_nodes, consolidate, in_gaps])
def test_every_placer_takes_an_equal_part_of_as_many_nodes_as_asked(place: object) -> None:
    free = Capacity(cluster_of("4x8:v100"))
    free.take(Allocation((free.slice(0, 3),)))
    free.take(Allocation((free.slice(1, 6),)))

    on = place(gang("j", 8, 2), free)  # type: ignore[operator]

    assert sizes(on) == [4, 4]
    assert [part.node for part in on.slices] == ["v100-0", "v100-2"]  # the fullest with room
    assert place(gang("j", 16, 4), free) is None  # type: ignore[operator]


def test_a_plan_that_puts_a_gang_elsewhere_is_put_right() -> None:
    view = view_of("2x8:v100", gang("j", 8, 2))

    plan = ask(Dense(), view)

    assert sizes(plan.changes[JobId("j")]) == [4, 4]
    check_plan(view, plan, ABOUT)


def test_a_gang_without_a_place_makes_room_for_others() -> None:
    view = view_of("1x8:v100", gang("two", 8, 2), Job(JobId("one"), demand=Demand(8)))

    plan = ask(Dense(), view)

    assert set(plan.changes) == {"one"}


def test_a_gang_that_runs_is_not_moved_off_its_nodes() -> None:
    view = view_of("3x4:v100", gang("j", 4, 2))
    on = fewest_nodes(view.job(0), view.free)
    assert on is not None
    view.free.take(on)
    view.table.allocations[0] = on

    plan = ask(Moving(), view)

    assert plan.changes == {}


def test_a_plan_with_a_gang_on_other_nodes_is_refused() -> None:
    view = view_of("2x8:v100", gang("j", 8, 2))

    with pytest.raises(PlanError, match="on 8 GPUs of 1 node; it takes 2 nodes with 4 GPUs each"):
        check_plan(view, Dense().decide(view), ABOUT)


def test_a_gang_on_one_node_waits_for_one() -> None:
    view = view_of("2x4:v100", gang("j", 4, 1))
    view.free.take(Allocation((view.free.slice(0, 1),)))
    view.free.take(Allocation((view.free.slice(1, 1),)))

    assert backfill(view, view.ranked(view.table.seq)).changes == {}
