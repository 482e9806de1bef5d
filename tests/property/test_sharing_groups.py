"""Jobs that were promised something while they run: groups, trials and turns on one device."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from benchmarks.any_job.simulated import PROMISE, average, run
from packages.weft.tests.runtime.test_sharing_device import Device, friendly


def slow_in_pairs(awake: Collection[str]) -> Mapping[str, float]:
    """a and b halve each other's speed; c disturbs nobody."""
    slow = {"a", "b"} <= {*awake}
    return {job: 0.5 if slow and job in "ab" else 0.95 if len(awake) > 1 else 1.0 for job in awake}


def promise_all(paces: object) -> Device:
    return Device(paces, dict.fromkeys("abc", PROMISE), firm=False)  # type: ignore[arg-type]


def test_jobs_that_keep_their_speed_run_together() -> None:
    device = promise_all(friendly)

    device.run("abc", 120.0)

    # Each is measured alone once, which takes the others a few seconds.
    assert max(device.frozen_s.values()) < 30.0
    assert device.frozen == frozenset()


def test_who_would_break_a_promise_waits_for_its_turn_and_others_run_beside() -> None:
    device = promise_all(slow_in_pairs)
    device.run("abc", 900.0)  # until the speed of each alone is known: others are frozen for that
    before, frozen = dict(device.steps), dict(device.frozen_s)

    device.run("abc", 300.0)

    done = {job: device.steps[job] - before[job] for job in "abc"}
    frozen_s = {job: device.frozen_s.get(job, 0.0) - frozen.get(job, 0.0) for job in "abc"}
    assert frozen_s["a"] + frozen_s["b"] == pytest.approx(300.0, rel=0.05)  # never at once
    assert min(done["a"], done["b"]) > 0.2 * 300.0 * 50.0  # both get their turns
    assert done["c"] > 0.8 * 300.0 * 50.0


def slow_together(awake: Collection[str]) -> Mapping[str, float]:
    """Each slows each other by a fifth: all at once do more than any that keep a promise."""
    return dict.fromkeys(awake, 1.0 / (1.0 + 0.2 * (len(awake) - 1)))


def test_nobody_waits_for_a_promise_that_costs_more_than_it_brings() -> None:
    names = "abcdefgh"
    device = Device(slow_together, dict.fromkeys(names, PROMISE), firm=False)
    device.run(names, 900.0)
    before = dict(device.frozen_s)

    device.run(names, 300.0)

    frozen = [device.frozen_s.get(job, 0.0) - before.get(job, 0.0) for job in names]
    assert max(frozen) < 0.05 * 300.0  # for probes alone


@pytest.mark.parametrize("contention", [0.25, 1.0])
def test_a_promise_to_everybody_costs_short_mixes_nothing(contention: float) -> None:
    for seed in range(3):
        mix = run(seed, 4.0, PROMISE, watched=True, contention=contention)
        at_once = run(seed, 4.0, None, watched=False, contention=contention)
        assert average(mix) <= 1.02 * average(at_once)
