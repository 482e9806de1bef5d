"""Probes, turns and promises on one device whose residents slow each other in a known way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import pytest

from weft.core.knowledge.measured import MeasuredAttempt
from weft.core.model.job import JobId
from weft.runtime.sharing.device import DeviceControl
from weft.runtime.sharing.groups import SharingGroups
from weft.runtime.sharing.speeds import ResidentSpeed, ResidentSpeeds

TICK_S = 0.25
Paces = Callable[[Collection[str]], Mapping[str, float]]


@dataclass
class Device:
    """Jobs of 50 steps a second alone, and of the part that `paces` says beside others."""

    paces: Paces
    promises: Mapping[str, float] = field(default_factory=dict)
    control: DeviceControl = field(default_factory=DeviceControl)
    now: float = 1_000.0
    steps: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    frozen_s: dict[str, float] = field(default_factory=dict)
    frozen: frozenset[JobId] = frozenset()
    totals: Mapping[str, float] = field(default_factory=dict)
    firm: bool = True
    report_s: float = TICK_S  # between two reports of a job's steps

    def run(self, jobs: Collection[str], seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            awake = [job for job in jobs if job not in self.frozen]
            paces = self.paces(awake)
            self.now += TICK_S
            for job in jobs:
                self.steps.setdefault(job, 0.0)
                self.samples.setdefault(job, [])
                if job in awake:
                    self.steps[job] += 50.0 * paces[job] * TICK_S
                    if self.now % self.report_s < TICK_S:
                        self.samples[job].append((self.now, self.steps[job]))
                else:
                    self.frozen_s[job] = self.frozen_s.get(job, 0.0) + TICK_S
            self.frozen = self.control.tick(self.now, {JobId(j): self.see(j) for j in jobs})

    def see(self, job: str) -> ResidentSpeed:
        measured = MeasuredAttempt(
            self.now, tuple(self.samples[job][-200:]), unit="step", total_steps=self.totals.get(job)
        )
        age_s = self.now - self.samples[job][0][0] if self.samples[job] else 0.0
        return ResidentSpeed(JobId(job), 1, measured, self.promises.get(job), age_s, self.firm)


def saturating(awake: Collection[str]) -> Mapping[str, float]:
    return {job: 0.98 / len(awake) for job in awake} if len(awake) > 1 else dict.fromkeys(awake, 1)


def friendly(awake: Collection[str]) -> Mapping[str, float]:
    return {job: 0.9 if len(awake) > 1 else 1.0 for job in awake}


def test_all_run_where_nobody_was_promised_anything_and_nothing_is_known() -> None:
    device = Device(saturating)

    device.run("ab", 20.0)

    assert not device.frozen_s


def test_probes_take_two_percent_of_the_time_at_most() -> None:
    device = Device(friendly)

    device.run("abc", 1_000.0)

    assert 0.0 < max(device.frozen_s.values()) <= 0.021 * 1_000.0
    assert device.control.speeds.pace(JobId("a")) == pytest.approx(0.9, abs=0.03)


def test_who_ran_alone_before_needs_no_probe() -> None:
    device = Device(friendly)
    device.run("a", 10.0)

    device.run("ab", 10.0)

    assert device.control.speeds.pace(JobId("a")) == pytest.approx(0.9, abs=0.03)
    assert not device.frozen_s


def test_jobs_that_do_no_more_together_take_turns_the_shortest_first() -> None:
    device = Device(saturating, totals={"a": 60_000.0, "b": 12_000.0})
    device.run("a", 10.0)

    device.run("ab", 120.0)  # until there was time to measure the other one alone
    before = dict(device.steps)
    device.run("ab", 40.0)

    assert device.control.mode == "turns"
    assert device.steps["b"] - before["b"] > 30.0 * 50.0
    assert device.steps["a"] - before["a"] < 10.0 * 50.0


def test_turns_end_when_somebody_leaves() -> None:
    device = Device(saturating)
    device.run("a", 10.0)
    device.run("ab", 160.0)
    assert device.control.mode == "turns"

    device.run("a", 5.0)

    assert not device.frozen


def test_jobs_that_gain_together_stay_together() -> None:
    device = Device(friendly)
    device.run("a", 10.0)

    device.run("ab", 160.0)

    assert device.control.mode == "together"


@pytest.mark.parametrize("promise", [1.1, 1.3, 2.0])
def test_a_promise_is_kept_by_a_duty_cycle_within_seconds(promise: float) -> None:
    device = Device(lambda awake: {job: 1.0 / len(awake) for job in awake}, {"a": promise})
    device.run("a", 10.0)

    device.run("ab", 20.0)
    before = device.steps["a"]
    device.run("ab", 60.0)

    assert (device.steps["a"] - before) / (50.0 * 60.0) >= 0.98 / promise
    assert device.control.resident_state(JobId("a")).broken_s <= 5.0
    assert device.steps["b"] > 0.02 * device.steps["a"]  # slowed, not stopped
    neighbours, pace = device.control.beside_now(JobId("a"))
    assert neighbours == (JobId("b"),)
    assert pace == pytest.approx(0.5, abs=0.05)


def test_a_promise_is_kept_although_others_come_and_go_all_the_time() -> None:
    device = Device(lambda awake: {job: 1.0 / len(awake) for job in awake}, {"a": 1.3})
    device.run("a", 10.0)
    before = device.steps["a"]

    for i in range(40):
        device.run(["a", f"b{i}", f"b{i + 1}"], 1.5)

    assert (device.steps["a"] - before) / (50.0 * 60.0) >= 0.98 / 1.3
    assert device.control.resident_state(JobId("a")).broken_s <= 5.0


def test_of_two_promises_that_cannot_both_be_kept_the_first_is() -> None:
    device = Device(saturating, {"a": 1.3, "b": 1.3})
    device.run("a", 10.0)
    device.run("ab", 20.0)
    before = dict(device.steps)

    device.run("abc", 60.0)

    assert (device.steps["a"] - before["a"]) / (50.0 * 60.0) >= 0.98 / 1.3
    assert device.steps["b"] > before["b"]
    assert device.steps["c"] <= 0.1 * (device.steps["b"] - before["b"])


def test_a_job_that_starts_up_does_not_spoil_a_probe() -> None:
    device = Device(friendly, {"a": 1.3})
    device.run("ab", 4.0)

    for _ in range(10):  # others come all the time, and do not train yet
        device.now += TICK_S
        awake = [job for job in "ab" if job not in device.frozen]
        for job in awake:
            device.steps[job] += 12.5
            device.samples[job].append((device.now, device.steps[job]))
        residents = {JobId(job): device.see(job) for job in "ab"}
        starting = JobId(f"new-{device.now}")
        residents[starting] = ResidentSpeed(starting, 1, MeasuredAttempt(), age_s=1.0)
        device.frozen = device.control.tick(device.now, residents)

    assert device.control.speeds.alone[JobId("a")] == pytest.approx(50.0)


@pytest.mark.parametrize("report_s", [TICK_S, 1.0])
def test_a_promise_that_others_do_not_break_freezes_nobody(report_s: float) -> None:
    device = Device(friendly, {"a": 1.3}, report_s=report_s)
    device.run("a", 10.0)

    device.run("ab", 60.0)

    assert not device.frozen_s


def test_a_newcomer_with_a_promise_is_measured_alone_first() -> None:
    device = Device(saturating, {"b": 1.3})
    device.run("a", 10.0)

    device.run("ab", 40.0)
    before = device.steps["b"]
    device.run("ab", 20.0)

    assert (device.steps["b"] - before) / (50.0 * 20.0) >= 0.98 / 1.3
    assert device.frozen_s.get("b", 0.0) == 0.0


def test_beside_a_job_whose_steps_nobody_counts_no_speed_is_taken_for_that_alone() -> None:
    device = Device(friendly)
    silent = ResidentSpeed(JobId("silent"), 1, MeasuredAttempt(), age_s=90.0)
    device.run("a", 2.0)

    for _ in range(80):
        device.now += TICK_S
        device.steps["a"] += 10.0
        device.samples["a"].append((device.now, device.steps["a"]))
        residents = {JobId("a"): device.see("a"), JobId("silent"): silent}
        device.control.tick(device.now, residents)

    assert device.control.speeds.pace(JobId("a")) is None
    assert device.control.mode == "together"


def test_who_starts_up_is_left_alone() -> None:
    device = Device(saturating, {"a": 1.1})
    device.run("a", 10.0)
    device.samples["b"], device.steps["b"] = [], 0.0

    residents = {JobId("a"): device.see("a"), JobId("b"): device.see("b")}

    assert device.control.tick(device.now + 1.0, residents) == frozenset()


def test_neighbours_that_break_a_promise_although_they_are_slowed_stand_still() -> None:
    ticks = {"since b ran": 99}

    def lingering(awake: Collection[str]) -> Mapping[str, float]:
        """What b does is felt for a second after it was frozen."""
        ticks["since b ran"] = 0 if "b" in awake else ticks["since b ran"] + 1
        return {job: 0.4 if job == "a" and ticks["since b ran"] < 4 else 1.0 for job in awake}

    device = Device(lingering, {"a": 1.3})
    device.run("a", 10.0)

    device.run("ab", 20.0)
    before = dict(device.steps)
    device.run("ab", 20.0)

    assert device.steps["a"] - before["a"] >= 0.95 / 1.3 * 20.0 * 50.0
    assert device.steps["b"] - before["b"] <= 0.1 * 20.0 * 50.0


def test_a_group_is_chosen_of_no_job_as_well() -> None:
    assert SharingGroups().choose(0.0, {}, ResidentSpeeds(), {}) == frozenset()  # none has reported


def test_jobs_whose_steps_are_never_seen_all_run() -> None:
    control = DeviceControl()
    residents = {
        JobId(job): ResidentSpeed(JobId(job), 1, MeasuredAttempt(), 1.3, 90.0, firm=False)
        for job in "ab"
    }

    for tick in range(100):
        frozen = control.tick(1_000.0 + tick * TICK_S, residents)

    assert not frozen
