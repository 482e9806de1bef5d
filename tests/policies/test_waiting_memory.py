"""Where allocations wait for memory, jobs join without a limit, by what they hold all the time."""

from __future__ import annotations

from tests.strangers import World
from weft.core.model.launch import Launch, Software, SoftwareKind


def test_programs_never_seen_start_beside_each_other_with_little_set_aside() -> None:
    world = World(waits=True)

    for number in range(4):
        world.submit(f"job-{number}", f"script_{number}.py")

    assert world.started == ["job-0", "job-1", "job-2", "job-3"]
    assert sum(on.sharing.gpu_mem_gb or 0.0 for on in world.held()) <= 8.0


def test_a_peak_of_a_moment_keeps_no_other_job_away() -> None:
    world = World(waits=True)
    world.submit("first", "spike.py")
    world.report("first", mem_gb=100.0, held_gb=1.0)

    world.submit("second", "spike.py")

    assert world.started == ["first", "second"]


def test_memory_that_is_held_all_the_time_does() -> None:
    world = World(waits=True)
    world.submit("first", "big.py")
    world.report("first", mem_gb=100.0, held_gb=100.0)

    world.submit("second", "big.py")

    assert world.started == ["first"]


def test_a_job_in_a_container_is_given_half_of_what_is_left_as_ever() -> None:
    world = World(waits=True)
    world.submit("first", "small.py")
    image = Software(SoftwareKind.IMAGE, "image")
    world.submit("second", launch=Launch(("python", "x.py"), software=image))

    claims = sorted(on.sharing.gpu_mem_gb or 0.0 for on in world.held())

    assert claims[-1] > 60.0
