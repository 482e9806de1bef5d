"""Jobs that say nonsense harm nobody else: the service lives, others end, the log reads back."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.seeds import varied
from weft.app.serve.live import Live, Settings
from weft.core.events.event import Event, Noticed, Reported, Saved
from weft.core.events.report import NAMES, Report
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.runtime.loop.driver import Driver
from weft.runtime.recovery.recover import recover

ENGINE = "simulated:cluster=2x4:a100,speed=3600"
LIMIT_S = 900.0
MESSAGES = int(os.environ.get("WEFT_FUZZ_REPORTS", "600"))
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 0.0, 1.0, 1e-300, 1e15, 1e18, 1e308, float("nan"), float("inf"), -float("inf")),
    *(10**400, True, None, "x", "", [], {}, "nan"),
)


def anything(rng: random.Random) -> Any:
    return rng.choice(NUMBERS) if rng.random() < 0.6 else rng.uniform(-10.0, 1e6)


def message(rng: random.Random, job: JobId, attempt: int) -> Event:
    what = rng.randrange(4)
    if what == 0:
        return Saved(job, attempt, anything(rng))
    if what == 1:
        texts: list[Any] = ["hello", "x" * 100_000, "\ud800", 7]
        levels: list[Any] = ["info", "loud", "", 3]
        return Noticed(job, attempt, rng.choice(levels), rng.choice(texts))
    fields = {name: anything(rng) for name in rng.sample(NAMES, rng.randint(1, 6))}
    return Reported(job, attempt, Report(**fields, user={"own": anything(rng)}))


async def hostile(driver: Driver, count: int, seed: int) -> None:
    """A job says `count` things while others are submitted and end."""
    rng, bad = random.Random(seed), JobId("bad")
    await driver.submit(Job(bad, demand=Demand(1), hints={"duration_s": 1e9}))
    while driver.job(bad).state != "running":
        await driver._changed.wait()
    others = []
    for i in range(count):
        driver._post(message(rng, bad, driver.job(bad).record.attempt))
        if i % 100 == 0:
            others.append(JobId(f"good-{i}"))
            await driver.submit(Job(others[-1], demand=Demand(1), hints={"duration_s": 1.0}))
        if i % 20 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_S):
        for name in others:
            assert (await driver.ended(name)).state == "succeeded"


def live(state: Path, policy: str) -> Live:
    return Live(Settings(engine=ENGINE, state=state, policy=policy))


def check(state: Path, policy: str, count: int, seed: int) -> None:
    async def go() -> None:
        service = live(state, policy)
        await service.open()
        await hostile(service.driver, count, seed)
        record = service.driver.job(JobId("bad")).record
        assert service.driver.messages.dropped > count // 10
        assert sum("is invalid" in text for _, _, text in record.notices) <= 1
        await service.close()

    asyncio.run(go())

    async def again() -> None:
        service = live(state, policy)
        await service.open()
        assert not service.store.unreadable_rows()
        whole = recover(service.store, service.driver._make)
        assert whole.ledger.jobs.keys() == service.driver.ledger.jobs.keys()
        await service.close()

    asyncio.run(again())


@pytest.mark.parametrize("policy", ["pollux", "slaq"])
def test_nonsense_of_one_job_lets_the_service_live_and_others_end(
    tmp_path: Path, policy: str
) -> None:
    check(tmp_path, policy, MESSAGES, seed=varied(1))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["las", "sia", "optimus", "pollux"])
def test_ten_thousand_messages_of_nonsense(tmp_path: Path, policy: str) -> None:
    check(tmp_path, policy, 10_000, seed=varied(crc32(policy.encode()) % 1000))


async def with_a_running_job(folder: Path) -> tuple[Live, JobId]:
    """A service whose only job runs, for as long as anybody watches."""
    service, name = live(folder, "fifo"), JobId("a")
    await service.open()
    await service.driver.submit(Job(name, hints={"duration_s": 1e9}))
    while service.driver.job(name).state != "running":
        await service.driver._changed.wait()
    return service, name


def test_it_is_said_once_what_could_not_be_used(tmp_path: Path) -> None:
    async def go() -> tuple[Any, int]:
        service, name = await with_a_running_job(tmp_path)
        driver = service.driver
        for loss in (float("nan"), float("inf"), 1e300, 0.5):
            driver._post(Reported(name, 1, Report(loss=loss, steps=3.0)))
        await driver.cancel(name)
        record = driver.job(name).record
        await service.close()
        return record, driver.messages.dropped

    record, dropped = asyncio.run(go())

    assert dropped == 3
    assert [text for _, _, text in record.notices] == [
        "part of its message is invalid and was ignored: loss is nan, expected -1e+15 to 1e+15"
    ]
    assert (record.report.loss, record.report.steps) == (0.5, 3.0)


def test_a_message_that_breaks_whoever_believes_it_is_left_out_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def observe(*_: object) -> None:
        raise ZeroDivisionError("as a bug of ours would")

    monkeypatch.setattr(FittedBeliefs, "observe", observe)

    async def go() -> Any:
        service, name = await with_a_running_job(tmp_path)
        driver = service.driver
        driver._post(Reported(name, 1, Report(loss=1.0)))
        await driver.submit(Job(JobId("b"), hints={"duration_s": 1.0}))
        async with asyncio.timeout(LIMIT_S):
            await driver.ended(JobId("b"))
        record = driver.job(name).record
        await service.close()
        return record

    record = asyncio.run(go())

    assert "ZeroDivisionError" in record.notices[0][2]
    assert record.outcome == ""


SCRIPT = """
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.connect(os.environ["WEFT_AGENT"])
say = lambda **body: line.sendall(json.dumps(body).encode() + b"\\n")
job, attempt = os.environ["WEFT_JOB"], int(os.environ["WEFT_ATTEMPT"])
say(type="hello", job=job, attempt=attempt, rank=0, pid=os.getpid())
for text in json.loads(sys.argv[1]):
    try:
        line.sendall(text.encode() + b"\\n")
    except OSError:
        break
"""
LINES = [
    '{"type":"report","values":{"loss":1}}',
    '{"type":"report","values":{"speed":1}}',
    '{"type":"report","values":{"loss":NaN,"epoch":1e18,"steps":-1}}',
    '{"type":"report","values":{"epoch":1e18,"loss":1,"iteration":1e15}}',
    '{"type":"report","values":{"step_s":"inf","grad_s":"nan"}}',
    '{"type":"saved","step":1' + "0" * 400 + ',"epoch":0,"path":""}',
    '{"type":"notice","level":"loud","text":"' + "x" * 50_000 + '"}',
    '{"type":"saved","step":"x","epoch":0,"path":""}',
    '{"type":"saved","step":1e400,"epoch":0,"path":""}',
    '{"type":"report","values":[1]}',
    '{"type":"report"}',
    "nonsense",
]


def test_real_jobs_that_say_nonsense_end_and_so_do_others(tmp_path: Path) -> None:
    local = "local:slots=2,warm=false,cpu=true,name=here"
    every: list[Callable[[], list[str]]] = [lambda: LINES, *(lambda x=x: [x] for x in LINES)]

    async def go() -> list[str]:
        service = Live(Settings(engine=local, state=tmp_path))
        await service.open()
        names = []
        for i, lines in enumerate(every):
            command = (sys.executable, "-c", SCRIPT, json.dumps(lines()))
            names.append(JobId(f"job-{i}"))
            launch = Launch(command, workdir=str(tmp_path), retries=0)
            await service.driver.submit(Job(names[-1], launch=launch))
        async with asyncio.timeout(LIMIT_S):
            states = [(await service.driver.ended(name)).state for name in names]
        assert not service.driver.engine.health.reason
        await service.close()
        return states

    states = asyncio.run(go())

    assert set(states) <= {"succeeded", "failed"}

    async def again() -> None:
        service = Live(Settings(engine=local, state=tmp_path))
        await service.open()
        assert not service.store.unreadable_rows()
        await service.close()

    asyncio.run(again())
