"""The order in which jobs that share a GPU get memory that becomes free."""

from __future__ import annotations

from tests.strangers import World

from weft.core.events.event import PolicyChanged, PriorityChanged, Woken
from weft.core.model.job import JobId
from weft.core.spec.part_spec import PartSpec


def places(world: World) -> dict[str, tuple[float, ...]]:
    return {str(job): at for job, at in world.scheduler.state.memory_order.items()}


def test_jobs_alone_have_no_place() -> None:
    world = World(waits=True)
    world.submit("first")

    assert not places(world)


def test_priority_comes_first_then_what_is_left() -> None:
    world = World(waits=True)
    world.submit("first")
    world.submit("second")
    world.tell(PriorityChanged(JobId("second"), 3.0), Woken())

    assert places(world)["second"] < places(world)["first"]


def test_a_decision_says_only_what_is_new() -> None:
    world = World(waits=True)
    world.submit("first")
    world.submit("second")
    before = {JobId(job): at for job, at in places(world).items()}

    assert not world.scheduler.state.find_reordered(before)
    assert world.scheduler.state.find_reordered({JobId("first"): (9.0,)})


def test_another_policy_begins_without_an_order() -> None:
    world = World(waits=True)
    world.submit("first")
    world.submit("second")
    assert places(world)

    world.scheduler.apply_event(world.now, PolicyChanged(PartSpec("fifo")))

    assert not places(world)
