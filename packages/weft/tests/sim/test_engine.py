"""The simulated engine keeps the contract of all engines."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import LIMIT_S

from weft.core.events.event import Event, Finished, Reported
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.protocols import Resident
from weft.perf.replay import Replay
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered, profile_of
from weft.sim.engine import SimulatedEngine
from weft.testing.check_engine import CHECKS
from weft.testing.engine_subject import Check, Subject


def job(name: str, gpus: int, **hints: float) -> Job:
    return Job(JobId(name), demand=Demand(gpus), hints=hints)


def subject() -> Subject:
    engine = SimulatedEngine("1x4:a100", speed=1000.0, perf=Replay())
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


async def until_over(engine: SimulatedEngine, count: int) -> list[tuple[float, Event]]:
    """What is told until so many have finished, with the engine's time."""
    events: list[tuple[float, Event]] = []
    async with asyncio.timeout(LIMIT_S):
        async for event in engine.events():
            events.append((engine._now(), event))
            if sum(isinstance(event, Finished) for _, event in events) == count:
                return events
    raise AssertionError


def shared(*gpus: int) -> Allocation:
    return Allocation((Slice(NodeId("a100-0"), gpus),), Sharing(0.5))


def test_neighbours_slow_each_other_as_in_a_simulation_and_only_while_they_are_there() -> None:
    coupling = Colocated(profile_of, Unordered())
    busy = {"iteration_s": 0.5, "gpu_util": 90.0, "gmem_util": 60.0}
    short, long = (
        job("short", 1, duration_s=300.0, **busy),
        job("long", 1, duration_s=600.0, **busy),
    )
    alone = job("alone", 1, duration_s=300.0, **busy)
    truth = coupling.speed(Resident(short, shared(0), "a100"), [Resident(long, shared(0), "a100")])

    async def run() -> list[tuple[float, Event]]:
        engine = SimulatedEngine(
            "1x2:a100", speed=1000.0, coupling=lambda *_: coupling, perf=Replay()
        )
        await engine.adopt(())
        for job, gpu in ((short, 0), (long, 0), (alone, 1)):
            await engine.start(job, shared(gpu), 1)
        events = await until_over(engine, 3)
        await engine.close()
        return events

    events = asyncio.run(run())

    ended = {str(event.job): at for at, event in events if isinstance(event, Finished)}
    paces = [e for _, e in events if isinstance(e, Reported) and e.report.pace is not None]
    assert 0.3 < truth < 0.95
    assert [e.report.pace for e in paces if e.job == "short"] == [pytest.approx(truth)]
    assert [e.report.pace for e in paces if e.job == "long"] == [pytest.approx(truth), 1.0]
    expected = {"alone": 300.0, "short": 300.0 / truth, "long": 300.0 / truth + 300.0}
    for name, at in expected.items():  # later as this machine is; sooner while one was alone yet
        assert 0.8 * at <= ended[name]
    assert ended["short"] < ended["long"]


def test_terms_that_change_change_the_speed_of_both() -> None:
    coupling = Colocated(profile_of)
    pair = [job(name, 1, duration_s=400.0) for name in ("a", "b")]

    async def run() -> list[tuple[float, Event]]:
        engine = SimulatedEngine(
            "1x2:a100", speed=1000.0, coupling=lambda *_: coupling, perf=Replay()
        )
        await engine.adopt(())
        for job in pair:
            await engine.start(job, shared(0), 1)
        await engine.stop(JobId("a"), 1, 10.0)
        events = await until_over(engine, 1)
        await engine.close()
        return events

    events = asyncio.run(run())

    paces = [e.report.pace for _, e in events if isinstance(e, Reported) and e.job == "b"]
    assert paces == [0.5, 1.0]
