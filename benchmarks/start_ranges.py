"""How many ranges for starts hold, by policy: `python -m benchmarks.start_ranges [POLICY ...]`.

A service in virtual time; lengths are known to nobody before, and two of three jobs belong to a
group of jobs alike. Each job that waits is asked about shortly after its submission and at some
time later, as `weft explain` does. Of the ranges that people are shown four of five should hold.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.scenarios.live import run_virtually

from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.explain import explain
from weft.app.insight.present import Present
from weft.app.serve.live import Live, Settings
from weft.core.events.event import Foretold
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.frozen import frozen
from weft.runtime.loop.driver import Driver
from weft.runtime.records.status import JobStatus
from weft.stack.windows import find_windows

POLICIES = ("fifo", "fifo:backfill=true", "srtf", "las", "weft", "tiresias")
CLUSTER, GPUS = "2x8:a100", 16
MEDIAN_S, SPREAD, WITHIN = 1_800.0, 1.2, 0.3
ALIKE, GROUPS, USERS = 0.65, 12, 6
SIZES = (1, 1, 1, 2, 2, 4, 8)
CPU_S = 0.8  # of an answer, as in a service
SLACK_S, LEAST = 30.0, 0.7


@frozen
class StartRange:
    """A range that was said, its middle, and when the start came; all in seconds from then."""

    low_s: float
    middle_s: float
    high_s: float
    came_s: float

    @property
    def off_s(self) -> float:
        """How far from the range the start was."""
        return max(self.came_s - self.high_s, self.low_s - self.came_s, 0.0)

    @property
    def width(self) -> float:
        """The end of the range as a multiple of its begin, both a minute later."""
        return (self.high_s + 60.0) / (self.low_s + 60.0)


def draw(count: int, load: float, seed: int) -> list[tuple[Job, float]]:
    """Jobs with the seconds that each takes."""
    rng = np.random.default_rng([seed, 46])
    medians = MEDIAN_S * rng.lognormal(0.0, SPREAD, GROUPS)
    sizes = rng.choice(SIZES, GROUPS)
    rows: list[tuple[Job, float]] = []
    at = 0.0
    mean_s = float(np.mean(SIZES)) * MEDIAN_S * np.exp(SPREAD**2 / 2.0)
    for i in range(count):
        at += float(rng.exponential(mean_s / (load * GPUS)))
        group = int(rng.integers(GROUPS))
        if rng.random() < ALIKE:
            script, gpus = f"train{group}.py", int(sizes[group])
            length = float(medians[group] * rng.lognormal(0.0, WITHIN))
        else:
            script, gpus = f"once{i}.py", int(rng.choice(SIZES))
            length = float(MEDIAN_S * rng.lognormal(0.0, SPREAD))
        launch = Launch(("python", script, "--seed", str(i)))
        user = f"u{group % USERS}"
        job = Job(JobId(f"j{i}"), at, Demand(gpus), tenant="lab", user=user, launch=launch)
        rows.append((job, max(length, 30.0)))
    return rows


def play(policy: str, count: int, load: float, seed: int) -> tuple[list[StartRange], int]:
    """A service with these jobs: the ranges that it simulated, and how often it could not."""
    rows = draw(count, load, seed)
    asked = _Asked(seed)

    async def whole(seconds: Callable[[], float]) -> None:
        engine = f"simulated:cluster={CLUSTER},speed=1"
        live = Live(Settings(engine=engine, policy=policy, decide_in="service"), seconds)
        hide_lengths(live.driver.engine, {job.id: length for job, length in rows})
        await live.open()
        try:
            await asked.serve(live.driver, rows)
        finally:
            await live.close()

    run_virtually(whole)
    return asked.ranges, asked.unknown


def hide_lengths(engine: Any, lengths: dict[JobId, float]) -> None:
    """Tell lengths to the simulated engine alone, and not as hints of jobs."""
    start = engine.start

    async def start_as_long(job: Job, *rest: Any) -> None:
        engine.default_s = lengths[job.id]
        await start(job, *rest)

    engine.start = start_as_long


class _Asked:
    """Asks a service when jobs start."""

    def __init__(self, seed: int) -> None:
        self.ranges: list[StartRange] = []
        self.unknown = 0
        self._rng = np.random.default_rng([seed, 47])
        self._open: list[tuple[JobId, float, tuple[float, float, float]]] = []

    async def serve(self, driver: Driver, rows: list[tuple[Job, float]]) -> None:
        """Submit all in their time and wait for their ends."""
        began = driver.now
        for number, (job, _) in enumerate(rows):
            await asyncio.sleep(max(began + job.submitted - driver.now, 0.0))
            await driver.submit(job)
            await asyncio.sleep(2.0)
            self._ask(driver, job.id)
            waiting = [status.record.job.id for status in driver.jobs() if _waits(status)]
            if waiting and number % 2:
                self._ask(driver, waiting[int(self._rng.integers(len(waiting)))])
        while any(not status.record.outcome for status in driver.jobs()):
            await asyncio.sleep(600.0)
        for name, at, span in self._open:
            started = driver.ledger.jobs[name].started
            assert started is not None
            self.ranges.append(StartRange(*span, started - at))

    def _ask(self, driver: Driver, job: JobId) -> None:
        if not _waits(driver.job(job)):
            return
        windows, correction = find_windows(driver.policy), driver.start_correction()
        present = Present.of(driver.scheduler, driver.now, windows, correction)
        start = explain(present, job, None, (), CpuBudget(CPU_S)).start
        assert start is not None
        low, middle, high = (start.quantile(q) for q in (0.1, 0.5, 0.9))
        if start.counted or low is None or middle is None or high is None:
            self.unknown += 1
            return
        driver.log_prediction(Foretold(job, low, middle, high))
        self._open.append((job, driver.now, (low, middle, high)))


def _waits(status: JobStatus) -> bool:
    return status.state == "pending" and not status.record.starts


def main() -> int:
    """Print a row for each policy; fail where fewer than seven of ten hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_ranges")
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print("| policy | ranges | hold | median width | worst miss | not simulated |")
    print("|---|--:|--:|--:|--:|--:|")
    held = made = 0
    for policy in asked.policies:
        played = [play(policy, asked.jobs, asked.load, seed) for seed in asked.seeds]
        ranges = [span for some, _ in played for span in some]
        unknown = sum(count for _, count in played)
        hold = sum(span.off_s <= SLACK_S for span in ranges)
        width = float(np.median([span.width for span in ranges] or [1.0]))
        worst = max((span.off_s for span in ranges), default=0.0) / 60.0
        part = f"{len(ranges)} | {hold / max(len(ranges), 1):.0%}"
        print(f"| {policy} | {part} | {width:.1f} x | {worst:.0f} min | {unknown} |", flush=True)
        held, made = held + hold, made + len(ranges)
    return 0 if held >= LEAST * made else 1


if __name__ == "__main__":
    sys.exit(main())
