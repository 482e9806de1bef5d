"""Plans, sizes, deadlines, spot, preemption, restarts and new rules at once, on a live scheduler.

A drawn mix of jobs under a drawn policy, with people who change the policy, its rules and
priorities, drain machines, and start the service again. A simple model of what was promised and of
who holds which device goes along: no device is given out twice, no job runs a plan that it did not
declare or that its GPUs cannot be divided into, and nobody is declined who was promised a deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cheap import every_policy
from tests.drawn_jobs import LEVELS, draw_work
from tests.scenarios.live import run_virtually
from tests.seeds import varied

from weft.app.serve.live import Live, Settings
from weft.app.serve.rules import Quotas
from weft.core.model.execution import read_execution
from weft.core.model.job import Demand, Job, JobId, NodeId, Or, Tier
from weft.core.model.launch import Launch
from weft.core.plan.reasons import Blocker
from weft.runtime.loop.job_commands import resume, set_priority, suspend

HIVED = "hived:cells=red@v100.gpu=2/blue@v100.gpu=2"
WRAPPED = ("gfs|weft", "gfs|fifo", "gfs|rubick", f"{HIVED}|weft", f"{HIVED}|fifo")
CLUSTERS = ("2x4:v100", "3x4:v100", "1x4:v100+1x4:a100")
PLANS = ("dp", "zero2", "tp2", "tp4", "pp2-ga4", "tp2-pp2-ga4", "ga4-gc")
SETTLED_S, END_S = 1.1, 3 * 86_400.0


def draw_job(rng: np.random.Generator, name: str, now: float) -> Job:
    work = draw_work(rng, now, 0.4)
    plans = rng.choice(PLANS, 3, replace=False).tolist() if rng.random() < 0.4 else []
    able = [plan for plan in map(read_execution, plans) if plan.on(work.demand.gpus) is not None]
    job = work.draw_rest(rng, name)
    return replace(job, plans=tuple(able), model=str(rng.choice(["small", "large"])))


def draw_rules(rng: np.random.Generator) -> Quotas:
    dice = rng.random()
    if dice < 0.4:
        return Quotas()
    if dice < 0.7:
        return Quotas(limits={"red": 4.0})
    return Quotas(own={"red": 4.0}) if dice < 0.85 else Quotas(weights={"red": 1.0, "blue": 2.0})


class Together:
    """One drawn mix under way, and a simple model of what was promised in it."""

    def __init__(self, seed: int, seconds: Callable[[], float], policy: str, folder: Path) -> None:
        self.rng, self.seconds = np.random.default_rng([seed, 31]), seconds
        self.policy, self.folder = policy, folder
        engine = f"simulated:cluster={self.rng.choice(CLUSTERS)},speed=1"
        self.settings = Settings(engine=engine, policy=policy, decide_in="service", state=folder)
        self.live = Live(self.settings, seconds)
        self.promised: set[JobId] = set()
        self.disturbed: list[float] = []  # when somebody took away what promises were made of

    async def play(self) -> str:
        """What went wrong; empty if nothing did."""
        await self.live.open()
        try:
            for number in range(int(self.rng.integers(6, 18))):
                await asyncio.sleep(float(self.rng.choice([1.0, 30.0, 400.0, 1500.0])))
                await self.disturb()
                driver = self.live.driver
                await driver.submit(draw_job(self.rng, f"j{number}", driver.now))
                await asyncio.sleep(SETTLED_S)
                if wrong := self.look():
                    return wrong
            return await self.to_the_end()
        finally:
            await self.live.close()

    async def disturb(self) -> None:
        """What people do now and then."""
        driver, dice = self.live.driver, self.rng.random()
        jobs = [status.record.job.id for status in driver.jobs() if not status.record.outcome]
        if dice < 0.5 or (dice > 0.8 and not jobs):
            return
        self.disturbed.append(driver.now)
        if dice < 0.6:
            await self.live.set_quotas(draw_rules(self.rng))
        elif dice < 0.66:
            await self.live.set_policy(str(self.rng.choice(["fifo", self.policy])))
        elif dice < 0.72:
            await self.live.close()
            self.live = Live(self.settings, self.seconds)
            await self.live.open()
        elif dice < 0.8:
            nodes = [node.id for node, _ in driver.nodes()]
            await driver.drain(nodes[int(self.rng.integers(len(nodes)))])
            await asyncio.sleep(300.0)
            await self.use_all(nodes)
        elif dice < 0.9:
            level = str(self.rng.choice(["normal", "guaranteed"]))
            await set_priority(driver, self.anybody(jobs), LEVELS[level], Tier.GUARANTEED)
        else:
            job = self.anybody(jobs)
            await suspend(driver, job, "its owner")
            await asyncio.sleep(120.0)
            await resume(driver, job)

    def anybody(self, jobs: list[JobId]) -> JobId:
        return jobs[int(self.rng.integers(len(jobs)))]

    async def use_all(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            await self.live.driver.undrain(node)

    async def to_the_end(self) -> str:
        driver = self.live.driver
        await self.live.set_quotas(Quotas())
        until = driver.now + END_S
        while driver.now < until and any(not s.record.outcome for s in driver.jobs()):
            await asyncio.sleep(600.0)
            if wrong := self.look():
                return wrong
        return driver.trouble or self.judge()

    def look(self) -> str:
        """Devices and plans of now, and who has been promised something."""
        driver = self.live.driver
        if driver.trouble:
            return driver.trouble
        table, held = driver.scheduler.state.table, Counter[tuple[NodeId, int]]()
        self.promised |= table.promised
        for job, on in zip(table.jobs, table.allocations, strict=True):
            if on is None:
                continue
            if on.sharing.tier is not Tier.OPPORTUNISTIC:
                held.update(
                    {(part.node, gpu): on.sharing.share for part in on.slices for gpu in part.gpus}
                )
            if on.plan is not None and on.plan not in [plan.on(on.gpus) for plan in job.plans]:
                return f"{job.id} runs {on.plan.text} on {on.gpus}"
        if twice := [device for device, share in held.items() if share > 1.0 + 1e-6]:
            return f"given out twice: {twice}"
        for status in driver.jobs():
            record = status.record
            if not record.outcome and record.blocker is Blocker.SPARED:
                return f"{record.job.id} {record.said}"
            if record.job.id in self.promised and "rejected" in record.reason:
                return f"{record.job.id} was promised its deadline, and then {record.reason}"
        return ""

    def judge(self) -> str:
        """What became of everybody."""
        for status in self.live.driver.jobs():
            record, job = status.record, status.record.job
            if record.outcome not in ("succeeded", "failed"):
                return f"{job.id} never ends: {record.said}"
            declined = "rejected" in record.reason and job.id not in self.promised
            if record.outcome == "failed" and not (declined or _too_large(record.reason)):
                return f"{job.id} fails: {record.reason}"
            if job.deadline is None or record.ended is None or record.outcome == "failed":
                continue
            late = record.ended > job.deadline + 1.0
            if late != record.missed:
                return f"{job.id} is late: {late}, and counts as {record.missed}"
            excused = any(record.submitted <= at <= record.ended for at in self.disturbed)
            if late and job.id in self.promised and not excused:
                return f"{job.id} was promised {job.deadline:.0f} and ends at {record.ended:.0f}"
        return ""


def _too_large(reason: str) -> bool:
    return "more than" in reason or "the virtual cluster of" in reason


def play(seed: int, policy: str, folder: Path) -> str:
    wrong = run_virtually(lambda seconds: Together(seed, seconds, policy, folder).play())
    return wrong and f"{policy}, seed {seed}: {wrong}"


@pytest.mark.parametrize("policy", (*every_policy(), *WRAPPED))
@pytest.mark.parametrize("seed", [4, pytest.param(varied(0), marks=pytest.mark.slow)])
def test_nothing_is_given_out_twice_and_no_promise_is_forgotten(
    policy: str, seed: int, tmp_path: Path
) -> None:
    assert play(seed, policy, tmp_path) == ""


@pytest.mark.parametrize("change", ["restart", "quotas", "policy"])
def test_a_promise_outlives_its_service_and_its_rules(change: str, tmp_path: Path) -> None:
    """When it goes on it is too late for a new promise, which keeps time for restarts."""
    engine = "simulated:cluster=1x4:v100,speed=1"
    settings = Settings(engine=engine, policy="fifo", decide_in="service", state=tmp_path / "s")
    due = JobId("due")

    async def people(seconds: Callable[[], float]) -> list[str]:
        live = Live(settings, seconds)
        await live.open()
        job = Job(
            due,
            demand=Demand(4),
            hints={"duration_s": 1000.0},
            deadline=live.driver.now + 4000.0,
            deadline_or=Or.DECLINE,
            launch=Launch(("true",)),
        )
        await live.driver.submit(job)
        await asyncio.sleep(SETTLED_S)
        await suspend(live.driver, due, "its owner")
        await asyncio.sleep(2930.0)
        if change == "restart":
            await live.close()
            live = Live(settings, seconds)
            await live.open()
        elif change == "quotas":
            await live.set_quotas(Quotas(limits={"red": 2.0}))
        else:
            await live.set_policy("srtf")
        await resume(live.driver, due)
        await asyncio.sleep(1060.0)
        record = live.driver.ledger.jobs[due]
        await live.close()
        return [record.outcome, record.reason, str(record.missed)]

    assert run_virtually(people) == ["succeeded", "", "False"]
