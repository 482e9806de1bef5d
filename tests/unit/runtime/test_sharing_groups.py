"""Jobs that were promised something while they run: groups, trials and turns on one device."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from benchmarks.any_job.simulated import PROMISE, average, run
from tests.unit.runtime.test_sharing_device import Device, friendly

from weft.core.model.job import JobId


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
    device.run("abc", 60.0)
    before, frozen = dict(device.steps), dict(device.frozen_s)

    device.run("abc", 300.0)

    done = {job: device.steps[job] - before[job] for job in "abc"}
    frozen_s = {job: device.frozen_s.get(job, 0.0) - frozen.get(job, 0.0) for job in "abc"}
    assert frozen_s["a"] + frozen_s["b"] == pytest.approx(300.0, rel=0.05)  # never at once
    assert min(done["a"], done["b"]) > 0.2 * 300.0 * 50.0  # both get their turns
    assert done["c"] > 0.8 * 300.0 * 50.0
    for job in "abc":
        assert device.control.standing(JobId(job)).broken_s <= 5.0


def test_a_promise_to_everybody_is_broken_for_seconds_only_and_costs_short_mixes_little() -> None:
    ratios, broken = [], []
    for seed in range(3):
        mix = run(seed, 4.0, PROMISE, watched=True)
        ratios.append(average(mix) / average(run(seed, 4.0, None, watched=False)))
        broken += [job.broken_s for job in mix]

    assert max(broken) <= 5.0
    assert sum(ratios) / len(ratios) <= 1.1
