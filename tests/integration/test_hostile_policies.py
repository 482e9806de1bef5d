"""Policies that loop, exit or eat memory: others' jobs go on, and people are told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_local_details import is_gone
from tests.waiting import LIMIT_S
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, PolicyChanged
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId
from weft.core.spec import registry
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.predict.hinted import Hinted
from weft.runtime.deciding import decision
from weft.runtime.deciding.decider import InWorker
from weft.runtime.deciding.replay import decide_again
from weft.runtime.loop.driver import Driver
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore

POLICIES = '''
import ctypes, os, sys, time
from dataclasses import dataclass
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.policies.fifo import Fifo

@dataclass(frozen=True)
class Once:
    """Well behaved until a job called `bait` waits."""
    about = About("once", "of this test")
    def decide(self, view):
        if any(job.id == "bait" for job in view.table.jobs):
            return self.trapped()
        return Fifo().decide(view)

class Loops(Once):
    def trapped(self):
        while True:
            pass

class Exits(Once):
    def trapped(self):
        os._exit(7)

class Quits(Once):
    def trapped(self):
        sys.exit("enough")

class Eats(Once):
    def trapped(self):
        hoard = []
        while True:
            hoard.append(bytearray(64 << 20))

class Crashes(Once):
    def trapped(self):
        ctypes.string_at(0)

class Prints(Once):
    def trapped(self):
        print("x" * 100_000)
        return Plan()
'''
NAMES = ("loops", "exits", "quits", "eats", "crashes", "prints")


@pytest.fixture(autouse=True)
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The policies as an installed package, here and in workers."""
    (tmp_path / "hostile_policies.py").write_text(POLICIES)
    about = tmp_path / "hostile-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    entries = "".join(f"{name} = hostile_policies:{name.title()}\n" for name in NAMES)
    (about / "entry_points.txt").write_text(f"[weft.policies]\n{entries}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(decision, "AGAIN_S", (0.05, 0.1))
    registry._entries.cache_clear()
    registry._installed.cache_clear()
    yield
    registry._entries.cache_clear()
    registry._installed.cache_clear()


def known() -> Knowledge:
    return Knowledge(Hinted(), LinearBeliefs())


def driven(
    policy: str, body: Callable[[Driver], Coroutine[Any, Any, None]], limit_s: float = 1.0
) -> MemoryStore:
    """A driver with its worker, while `body` lasts; the log it leaves."""
    store = MemoryStore()

    async def run() -> None:
        worker = InWorker(limit_s=limit_s, memory_gb=2.0)
        engine = SimulatedEngine("1x4:a100", speed=1.0, default_s=0.2, perf=Replay())
        driver = Driver(engine, store, policy=policy, knowledge=known, decider=worker)
        await driver.open()
        try:
            async with asyncio.timeout(LIMIT_S):
                await body(driver)
        finally:
            await driver.close()

    asyncio.run(run())
    return store


def job(name: str, gpus: int = 1, seconds: float = 0.2) -> Job:
    return Job(JobId(name), demand=Demand(gpus), hints={"duration_s": seconds})


@pytest.mark.parametrize("policy", ["loops", "exits", "quits", "eats", "crashes"])
def test_others_jobs_finish_whatever_a_policy_does(policy: str) -> None:
    async def bait_and_others(driver: Driver) -> None:
        await driver.submit(job("before"))
        assert (await driver.ended(JobId("before"))).state == "succeeded"
        await driver.submit(job("bait", seconds=3600.0))
        for number in range(3):
            await driver.submit(job(f"after{number}"))
            assert (await driver.ended(JobId(f"after{number}"))).state == "succeeded"
        async for rows in driver.subscribe(0):
            if any(isinstance(e, PolicyChanged) and e.instead_of for _, _, e in rows):
                break
        assert driver.job(JobId("bait")).state == "running"
        assert driver.policy.text == "no_preempt|fifo:backfill=true"
        assert f"'{policy}' failed too often" in driver.trouble
        assert driver.decisions.failures == 3

    log = driven(f"firm|{policy}", bait_and_others).since(0)

    decided = [event for _, _, event in log if isinstance(event, Decided)]
    assert {decision.by.text if decision.by else "" for decision in decided} == {
        "",
        "no_preempt|fifo:backfill=true",
    }
    again = decide_again(log, knowledge=known())
    assert [turn for turn in again if turn.then != turn.now] == []


def test_a_person_can_give_a_policy_another_chance() -> None:
    async def forgive(driver: Driver) -> None:
        await driver.submit(job("bait", seconds=3600.0))
        async for rows in driver.subscribe(0):
            if any(isinstance(e, PolicyChanged) and e.instead_of for _, _, e in rows):
                break
        await driver.cancel(JobId("bait"))
        await driver.set_policy("exits")
        await driver.submit(job("good"))
        await driver.ended(JobId("good"))
        assert driver.trouble == ""
        assert driver.policy.text == "exits"

    log = driven("exits", forgive).since(0)

    last = [event for _, _, event in log if isinstance(event, Decided)][-1]
    assert last.by is None


def test_who_submits_is_answered_while_a_policy_thinks() -> None:
    async def submit_during(driver: Driver) -> None:
        await driver.submit(job("bait", seconds=3600.0))
        # On disk and answered, although the decision about it is not there yet.
        assert not any(isinstance(event, Decided) and event.changes for _, _, event in seen(driver))
        assert driver.job(JobId("bait")).state == "pending"

    def seen(driver: Driver) -> list[Any]:
        return driver.store.since(0)

    driven("loops", submit_during, limit_s=3.0)


def test_what_a_policy_prints_harms_nobody() -> None:
    async def print_a_lot(driver: Driver) -> None:
        await driver.submit(job("bait"))
        await driver.submit(job("other"))
        assert driver.trouble == ""

    driven("prints", print_a_lot, limit_s=30.0)


def test_no_worker_outlives_its_driver() -> None:
    pids: list[int] = []

    async def remember(driver: Driver) -> None:
        await driver.submit(job("one"))
        await driver.ended(JobId("one"))
        worker = driver._decider
        assert isinstance(worker, InWorker)
        assert worker.pid is not None
        pids.append(worker.pid)

    driven("fifo", remember, limit_s=30.0)

    assert is_gone(pids[0])


def test_a_driver_that_does_not_open_leaves_no_process_behind() -> None:
    async def life() -> int | None:
        worker = InWorker()
        engine = SimulatedEngine("1x4:a100", perf=Replay())
        store = MemoryStore()
        first = Driver(engine, store, policy="fifo")
        await first.open()
        await first.submit(Job(JobId("j"), hints={"duration_s": 1e9}))
        while first.job(JobId("j")).state != "running":
            await first._changed.wait()
        await first.close()
        other = Driver(engine, MemoryStore(), policy="fifo", decider=worker)
        with pytest.raises(InvalidConfig, match="run here that are not in the log"):
            await other.open()
        return worker.pid

    assert asyncio.run(life()) is None
