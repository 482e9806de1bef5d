"""A job that counts its steps says better than any predictor how long it has left."""

from __future__ import annotations

import pytest
from tests.strangers import World

from weft.core.events.event import Reported
from weft.core.events.report import Report
from weft.core.model.job import JobId
from weft.predict.none import NoPredictor


@pytest.fixture
def world() -> World:
    world = World()
    world.scheduler.knowledge.predictor = NoPredictor()
    world.submit("job")
    return world


def count(world: World, total: float | None) -> None:
    report = Report(steps=100.0, total_steps=total, step_s=0.5)
    world.tell(Reported(JobId("job"), world.attempt("job"), report))


def remaining(world: World, after: float = 0.0) -> float:
    return float(world.scheduler.view(world.now + after).remaining()[0])


def test_steps_left_times_their_length_less_what_ran_since(world: World) -> None:
    before = remaining(world)

    count(world, total=300.0)

    assert before != 100.0
    assert [remaining(world, after) for after in (0.0, 40.0, 400.0)] == [100.0, 60.0, 1.0]


def test_steps_of_no_known_total_say_nothing(world: World) -> None:
    before = remaining(world)

    count(world, total=None)

    assert remaining(world) == before


def test_it_is_forgotten_with_the_job(world: World) -> None:
    count(world, total=300.0)

    world.finish("job")

    assert not world.scheduler.knowledge.counted
