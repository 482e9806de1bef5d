"""The simulated engine keeps the contract of all engines."""

from __future__ import annotations

import asyncio

import pytest

from weft.core.model import Demand, Job, JobId
from weft.sim.engine import SimulatedEngine
from weft.testing.check_engine import CHECKS, Check, Subject


def job(name: str, gpus: int, **hints: float) -> Job:
    return Job(JobId(name), demand=Demand(gpus), hints=hints)


def subject() -> Subject:
    engine = SimulatedEngine("1x4:a100", speed=1000.0)
    return Subject(
        make=lambda: engine,
        job=lambda name, gpus: job(name, gpus, duration_s=50.0),
        endless=lambda name, gpus: job(name, gpus, duration_s=1e9),
        failing=lambda name, gpus: job(name, gpus, duration_s=60.0, fails_at_s=30.0),
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_simulated_engine_keeps_the_contract(check: Check) -> None:
    async def run() -> None:
        await check(subject())

    asyncio.run(run())
