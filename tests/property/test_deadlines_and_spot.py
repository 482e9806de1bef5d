"""Promised deadlines and spot hours on a live scheduler, against a simple model of both.

A drawn mix of jobs (promised deadlines, plain ones, some that may not be stopped, opportunistic and
spot ones) under drawn quotas, with machines that are drained and put back. Lengths are known, so a
promise may be broken only by who took machines away after it was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from tests.drawn_jobs import draw_work
from tests.scenarios.live import run_virtually
from tests.seeds import varied

from weft.app.serve.live import Live, Settings
from weft.app.serve.rules import Quotas
from weft.core.model.job import Job, NodeId, Or
from weft.core.plan.reasons import Blocker
from weft.runtime.records.job_records import JobRecord

POLICIES = ("fifo:backfill=true", "srtf", "weft", "las", "elasticflow", "gfs|weft", "gfs|fifo")
CLUSTERS = ("1x4:v100", "2x4:v100", "3x2:v100", "1x4:v100+1x4:a100")
END_S, SETTLED_S = 2 * 86_400.0, 1.1


def draw_job(rng: np.random.Generator, name: str, now: float) -> Job:
    return draw_work(rng, now, 0.3).draw_rest(rng, name)


def draw_rules(rng: np.random.Generator) -> Quotas:
    dice = rng.random()
    if dice < 0.4:
        return Quotas()
    return Quotas(limits={"red": 4.0}) if dice < 0.7 else Quotas(weights={"red": 1.0, "blue": 2.0})


class Mix:
    """One drawn mix under way, and what happened in it."""

    def __init__(self, seed: int, seconds: Callable[[], float], policy: str = "") -> None:
        self.rng = np.random.default_rng([seed, 29])
        self.cluster = str(self.rng.choice(CLUSTERS))
        self.policy = policy or str(self.rng.choice(POLICIES))
        engine = f"simulated:cluster={self.cluster},speed=1"
        settings = Settings(engine=engine, policy=self.policy, decide_in="service")
        self.live = Live(settings, seconds)
        self.live.quotas = self.rules = draw_rules(self.rng)
        self.drained: list[float] = []  # when machines were taken away

    async def play(self) -> str:
        """What went wrong; empty if nothing did."""
        driver, rng = self.live.driver, self.rng
        await self.live.open()
        try:
            nodes = [node.id for node, _ in driver.nodes()]
            for number in range(int(rng.integers(6, 22))):
                await asyncio.sleep(float(rng.choice([1.0, 30.0, 400.0, 1500.0])))
                if rng.random() < 0.12 and len(nodes) > 1:
                    await self.take_away_or_put_back(nodes)
                await driver.submit(draw_job(rng, f"j{number}", driver.now))
                await asyncio.sleep(SETTLED_S)
                for status in driver.jobs():
                    if not status.record.outcome and status.record.blocker is Blocker.SPARED:
                        return f"{self.policy}: {status.record.job.id} {status.record.said}"
            for node in nodes:
                await driver.undrain(node)
            until = driver.now + END_S
            while driver.now < until and any(not s.record.outcome for s in driver.jobs()):
                await asyncio.sleep(600.0)
            return driver.trouble or self.judge()
        finally:
            await self.live.close()

    async def take_away_or_put_back(self, nodes: list[NodeId]) -> None:
        if self.drained and self.rng.random() < 0.5:
            for node in nodes:
                await self.live.driver.undrain(node)
        else:
            self.drained.append(self.live.driver.now)
            await self.live.driver.drain(nodes[int(self.rng.integers(len(nodes)))])

    def judge(self) -> str:
        for status in self.live.driver.jobs():
            if wrong := self.wrong(status.record):
                job = status.record.job
                what = f"{self.policy} {self.rules.limits}{self.rules.weights} on {self.cluster}"
                return f"{what}: {job.id} {wrong} ({status.record.reason or status.record.said})"
        return ""

    def wrong(self, record: JobRecord) -> str:
        job = record.job
        if record.outcome not in ("succeeded", "failed"):
            return f"never ends: {record.said}"
        if record.outcome == "failed":
            declined = job.deadline_or is Or.DECLINE and "rejected" in record.reason
            too_large = "more than" in record.reason
            return "" if declined or too_large else f"fails: {record.reason}"
        if job.deadline is None or record.ended is None:
            return ""
        late = record.ended > job.deadline + 1.0
        if late != record.missed:
            return f"ends {record.ended - job.deadline:.0f} s late, counted as {record.missed}"
        excused = any(record.submitted <= at <= record.ended for at in self.drained)
        if late and job.deadline_or is Or.DECLINE and not excused:
            return (
                f"was promised {job.deadline:.0f} and ends {record.ended - job.deadline:.0f} s late"
            )
        return ""


@pytest.mark.parametrize(
    ("seed", "policy"),
    [
        pytest.param(1, "", marks=pytest.mark.slow),
        (3, "fifo:backfill=true"),
        (9, "gfs|weft"),
        (12, ""),
        (18, "srtf"),
    ],
)
def test_no_promised_deadline_is_broken_unless_machines_are_taken_away(
    seed: int, policy: str
) -> None:
    assert run_virtually(lambda seconds: Mix(varied(seed), seconds, policy).play()) == ""
