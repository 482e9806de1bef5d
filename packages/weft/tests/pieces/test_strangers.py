"""Jobs that nobody knows join others on a GPU where their memory fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.strangers import World

from weft.core.asleep.sleeping import Sleeping
from weft.core.events.event import Failed, Observed, Stopped, Woken
from weft.core.model.job import Demand, JobId
from weft.core.spec.registry import build
from weft.core.stops import Rung


def test_a_newcomer_joins_a_job_that_is_known_to_leave_memory() -> None:
    world = World()
    world.submit("first")
    world.report("first", mem_gb=2.0)

    world.submit("second")

    assert world.started == ["first", "second"]
    assert world.shares() == {"first": 0.5, "second": 0.5}


def test_without_the_option_it_waits() -> None:
    world = World(policy="weft")
    world.submit("first")
    world.report("first", mem_gb=2.0)

    world.submit("second")

    assert world.started == ["first"]


def test_start_ups_of_jobs_never_seen_overlap_within_their_trial_memory() -> None:
    world = World()
    for name in "abcdefgh":
        world.submit(name)

    claims = [on.sharing.gpu_mem_gb for on in world.held() if on.sharing.gpu_mem_gb]

    assert 3 <= len(world.started) < 8
    assert sum(claims) <= 141.0
    assert min(claims) >= 141.0 / 17


def test_who_waits_joins_once_the_memory_of_those_there_is_known() -> None:
    world = World()
    for name in "abcdefgh":
        world.submit(name)
    before = list(world.started)

    for name in before:
        world.observe(name, 1.5)

    assert len(world.started) > len(before)


def test_a_program_that_ran_before_needs_no_trial() -> None:
    world = World()
    world.submit("run-1", "train.py --steps 100")
    world.report("run-1", mem_gb=60.0)
    world.finish("run-1")
    world.submit("run-2", "train.py --steps 250")

    world.submit("run-3", "train.py --steps 30")
    world.submit("run-4", "train.py --steps 90")

    assert world.started == ["run-1", "run-2", "run-3"]  # 66.5 GB each: no third fits


def test_who_declares_its_memory_is_believed() -> None:
    world = World()
    world.submit("large", gpu_mem_gb=100.0)
    world.submit("small", gpu_mem_gb=30.0)
    world.submit("other", gpu_mem_gb=30.0)

    assert world.started == ["large", "small"]


def test_three_percent_of_a_device_are_left_to_the_driver() -> None:
    world = World()
    device_gb = world.scheduler.state.cluster.nodes[0].device_gb
    world.submit("large", gpu_mem_gb=100.0)
    world.submit("tight", gpu_mem_gb=0.985 * device_gb - 100.0)
    world.submit("fits", gpu_mem_gb=0.965 * device_gb - 100.0)

    assert world.started == ["large", "fits"]


def test_who_refuses_company_has_none() -> None:
    world = World()
    world.submit("shy", shareable=False)
    world.report("shy", mem_gb=1.0)

    world.submit("second")

    assert world.started == ["shy"]


def test_who_ran_out_of_memory_beside_others_starts_again_alone() -> None:
    world = World()
    world.submit("first")
    world.report("first", mem_gb=1.0)
    world.submit("large")

    world.tell(
        Failed(JobId("large"), 1, "", retry=True, lost=True, code=1, out_of_memory=True), after=60.0
    )
    assert world.started == ["first", "large"]
    world.finish("first")
    world.submit("third")

    assert world.started == ["first", "large", "large"]
    assert world.shares() == {"large": 1.0}
    world.observe("large", 90.0)
    assert world.shares() == {"large": 0.5, "third": 0.5}


def test_who_is_left_has_the_device_again() -> None:
    world = World()
    world.submit("first")
    world.report("first", mem_gb=2.0)
    world.submit("second")
    world.finish("first")

    assert world.shares() == {"second": 1.0}


def test_a_job_of_several_gpus_is_not_joined() -> None:
    world = World("1x2:h200")
    world.submit("gang", demand=Demand(2))
    world.report("gang", mem_gb=2.0)

    world.submit("second")

    assert world.started == ["gang"]


def test_devices_are_filled_before_they_are_shared() -> None:
    world = World("1x2:h200")
    for name in "abc":
        world.submit(name)
        world.report(name, mem_gb=2.0)

    assert world.shares() == {"a": 0.5, "b": 1.0, "c": 0.5}


def test_who_would_be_stopped_for_another_stays_beside_it() -> None:
    world = World()
    world.submit("first", preemptible=True)
    world.observe("first", 2.0)
    world.now += 3_600.0  # it has run long enough to be ranked behind who is new

    world.submit("second", preemptible=True)

    assert world.started == ["first", "second"]
    assert world.shares() == {"first": 0.5, "second": 0.5}


def test_a_job_that_is_frozen_on_a_device_keeps_its_memory_there() -> None:
    world = World()
    world.submit("large", gpu_mem_gb=100.0)
    world.submit("small", gpu_mem_gb=20.0)
    view = world.scheduler.view(world.now)
    on = view.holds(JobId("large"))
    assert on is not None
    asleep = {JobId("large"): Sleeping(JobId("large"), 1, Rung.FREEZE, on, 0.0, there=True)}
    world.submit("other", gpu_mem_gb=30.0)
    view = world.scheduler.view(world.now)
    view.table.allocations[0] = None
    view.free.give(on)

    plan = build("policy", "weft:strangers=true").decide(replace(view, asleep=asleep))

    after = view.after(plan)
    assert JobId("other") not in after  # 100 GB are still held by who sleeps
    assert after[JobId("large")].devices == on.devices


def test_memory_of_who_is_suspended_in_its_sleep_is_given_to_nobody() -> None:
    world = World()
    world.submit("large", gpu_mem_gb=100.0)
    world.submit("small", gpu_mem_gb=20.0)
    on = world.scheduler.view(world.now).holds(JobId("large"))
    assert on is not None
    world.submit("other", gpu_mem_gb=30.0)
    view = world.scheduler.view(world.now)
    view.table.allocations[0] = None
    view.table.suspended.add(JobId("large"))
    view.free.give(on)
    asleep = {JobId("large"): Sleeping(JobId("large"), 1, Rung.FREEZE, on, 0.0, there=True)}
    policy = build("policy", "weft:strangers=true")

    beside = policy.decide(replace(view, asleep=asleep))
    awake = policy.decide(view)

    assert JobId("other") not in view.after(beside)
    assert JobId("other") in view.after(awake)


@pytest.mark.parametrize(("device_gb", "joins"), [(100.0, False), (20.0, True), (0.0, False)])
def test_a_frozen_job_that_is_not_shown_keeps_its_memory(device_gb: float, joins: bool) -> None:
    # A rule around the policy shows it some jobs only; of the sleeper's memory it may know nothing.
    world = World()
    world.submit("large", gpu_mem_gb=100.0)
    world.submit("small", gpu_mem_gb=20.0)
    on = world.scheduler.view(world.now).holds(JobId("large"))
    assert on is not None
    on = replace(on, sharing=replace(on.sharing, gpu_mem_gb=None))
    world.submit("other", gpu_mem_gb=30.0)
    view = world.scheduler.view(world.now)
    view.free.give(view.table.allocations[0] or on)
    view.table.allocations[0] = None
    asleep = Sleeping(JobId("large"), 1, Rung.FREEZE, on, 0.0, there=True, device_gb=device_gb)
    shown = replace(view, asleep={JobId("large"): asleep}).without(np.array([True, False, False]))

    plan = build("policy", "weft:strangers=true").decide(shown)

    assert (JobId("other") in shown.after(plan)) is joins


def test_a_frozen_gang_keeps_its_memory_on_each_of_its_devices() -> None:
    world = World(cluster="1x2:h200")
    world.submit("gang", gpu_mem_gb=100.0, demand=Demand(2))
    on = world.scheduler.view(world.now).holds(JobId("gang"))
    assert on is not None
    world.submit("a", gpu_mem_gb=10.0)
    world.submit("b", gpu_mem_gb=10.0)
    world.submit("other", gpu_mem_gb=30.0)
    view = world.scheduler.view(world.now)
    view.table.allocations[0] = None
    view.table.suspended.add(JobId("gang"))
    view.free.give(on)
    asleep = {JobId("gang"): Sleeping(JobId("gang"), 1, Rung.FREEZE, on, 0.0, True, 100.0)}
    policy = build("policy", "weft:strangers=true")

    beside = view.after(policy.decide(replace(view, asleep=asleep)))
    awake = view.after(policy.decide(view))

    assert sorted(awake) == ["a", "b", "other"]
    assert sorted(beside) == ["a", "b"]


def test_memory_of_who_wakes_now_is_counted_once() -> None:
    world = World()
    world.submit("large", gpu_mem_gb=60.0)
    on = world.scheduler.view(world.now).holds(JobId("large"))
    assert on is not None
    world.submit("other", gpu_mem_gb=30.0)
    view = world.scheduler.view(world.now)
    for held in world.held():
        view.free.give(held)
    view = view.released(np.arange(2))
    asleep = {JobId("large"): Sleeping(JobId("large"), 1, Rung.FREEZE, on, 0.0, True, 60.0)}

    plan = build("policy", "weft:strangers=true").decide(replace(view, asleep=asleep))

    assert sorted(view.after(plan)) == ["large", "other"]


def test_who_needs_little_joins_although_a_large_job_finds_no_room() -> None:
    world = World()
    world.submit("large", gpu_mem_gb=100.0)
    world.submit("wide", gpu_mem_gb=60.0)

    world.submit("unknown")  # a sixteenth of the device is enough for its trial

    assert world.started == ["large", "unknown"]


def break_promise(world: World, broken_s: float) -> None:
    beside = (JobId("loose"),)
    world.tell(Observed(JobId("firm"), 1, pace=0.5, beside=beside, broken_s=broken_s))


def share_with_firm(cluster: str) -> World:
    world = World(cluster)
    world.submit("firm", slowdown=1.3)
    world.report("firm", mem_gb=2.0)
    for name in ("other", "another")[: world.scheduler.state.cluster.gpus - 1]:
        world.submit(name, shareable=False)
    world.submit("loose", preemptible=True)
    world.report("loose", mem_gb=2.0)
    assert world.shares()["loose"] == 0.5
    return world


def test_a_neighbour_that_breaks_a_promise_although_it_is_slowed_leaves() -> None:
    world = share_with_firm("1x1:h200")
    break_promise(world, 1.0)
    assert world.shares() == {"firm": 0.5, "loose": 0.5}

    break_promise(world, 4.0)
    world.tell(Stopped(JobId("loose"), 1))
    world.tell(Woken(), after=1.0)

    assert world.shares() == {"firm": 1.0}
    assert len(world.started) == 2


def test_it_goes_on_elsewhere_as_soon_as_it_can() -> None:
    world = share_with_firm("1x2:h200")
    world.finish("other")

    break_promise(world, 4.0)
    world.tell(Stopped(JobId("loose"), 1))
    world.tell(Woken(), after=1.0)

    assert world.shares() == {"firm": 1.0, "loose": 1.0}


def test_who_was_promised_nothing_firmly_makes_nobody_leave() -> None:
    world = World()
    world.submit("firm", preemptible=True)
    world.report("firm", mem_gb=2.0)
    world.submit("loose", preemptible=True)

    break_promise(world, 10.0)

    assert world.shares() == {"firm": 0.5, "loose": 0.5}


def three_promises() -> World:
    """Two jobs that are known, and a third of which nothing is."""
    world = World()
    for name in ("first", "second", "third"):
        world.submit(name, slowdown=1.3)
        if name != "third":
            world.report(name, mem_gb=2.0)
    return world


def test_a_third_promise_waits_until_its_keeping_is_known() -> None:
    world = three_promises()

    assert world.started == ["first", "second"]
    third = JobId("third")
    view = replace(world.scheduler.view(world.now), asked=frozenset({third}))
    assert "were promised a slowdown" in world.scheduler.policy.decide(view).reasons[third]


def test_a_job_without_a_promise_does_not_wait_behind_a_third_one() -> None:
    world = three_promises()

    world.tell(Woken(), after=1000.0)
    world.submit("easy-going")

    assert world.started == ["first", "second", "easy-going"]


def test_a_promise_beside_others_is_made_again_when_one_of_them_ends() -> None:
    world = three_promises()

    world.finish("first")

    assert world.started == ["first", "second", "third"]
