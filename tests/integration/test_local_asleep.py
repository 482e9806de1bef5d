"""Attempts that are frozen, suspended and woken while they run, and whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from weft.core.errors import EngineError, NotRunningError
from weft.core.events.event import Event, Failed, Finished, Started, Stopped
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.stops import PLAN, PROBE, Rung
from weft.engines.local import LocalEngine
from weft.wire.attempt import folder_of
from weft.wire.processes import descendants, is_frozen, is_stopping, start_time
from weft.wire.sleep import AWAKE, FROZEN, SUSPENDED, read_state

DRIVER = Path(__file__).with_name("pretend_driver.py")
JOB = JobId("sleepy")
# Counts up, with children that come and go, some of them in sessions of their own.
BUSY = """
import subprocess, sys, time
children = []
for number in range(int(sys.argv[1])):
    print(number, flush=True)
    if number % 3 == 0:
        children.append(subprocess.Popen(["sleep", "0.2"], start_new_session=number % 2 == 0))
    children = [one for one in children if one.poll() is None]
    time.sleep(0.01)
"""


class Running:
    """A job on an engine, and what was told of it."""

    def __init__(self, engine: LocalEngine, state: Path, room: Path) -> None:
        self.engine, self.state, self.room = engine, state, room
        self.told: list[Event] = []

    async def until(self, *kinds: type[Event]) -> Event:
        async with asyncio.timeout(LIMIT_S):
            async for event in self.engine.events():
                self.told.append(event)
                if isinstance(event, kinds):
                    return event
        raise AssertionError("nothing more was told")

    @property
    def folder(self) -> Path:
        return folder_of(self.state, JOB, 1)

    @property
    def lines(self) -> int:
        log = self.folder / "rank-0.log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    async def prints(self) -> bool:
        """Whether it gets on, within a while."""
        before, until = self.lines, time.monotonic() + LIMIT_S
        while self.lines <= before + 3 and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return self.lines > before + 3

    async def stands_still(self) -> bool:
        """Whether nothing more is printed, once what was printed before has been read."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            before = self.lines
            await asyncio.sleep(0.4)
            if self.lines == before:
                return True
        return False

    @property
    def agent(self) -> int:
        return int(json.loads((self.folder / "claim.json").read_text())["pid"])

    @property
    def processes(self) -> list[int]:
        return descendants(self.agent)


Test = Callable[[Running], Awaitable[None]]


@asynccontextmanager
async def running(
    tmp_path: Path,
    count: int = 100_000,
    groups: bool = False,
    wake_alone_s: float = 30.0,
    **launch: object,
) -> AsyncIterator[Running]:
    state, room = tmp_path / "state", tmp_path / "room"
    room.mkdir()
    command = (sys.executable, "-c", BUSY, str(count))
    engine = open_engine(state, room, groups=groups, wake_alone_s=wake_alone_s)
    await engine.adopt(())
    run = Running(engine, state, room)
    job = Job(JOB, demand=Demand(1), launch=Launch(command, workdir="/", **launch))  # type: ignore[arg-type]
    node = (await engine.nodes())[0]
    await engine.start(job, Allocation((Slice(node.id, (0,)),)), 1)
    await run.until(Started)
    assert await run.prints()
    try:
        yield run
    finally:
        await run.engine.stop(JOB, 1, 0.0)
        await run.engine.close()


def open_engine(
    state: Path, room: Path, *, groups: bool = False, wake_alone_s: float = 30.0
) -> LocalEngine:
    return LocalEngine(
        state,
        slots=2,
        warm=False,
        cpu=True,
        groups=groups,
        pin=False,
        suspender=(sys.executable, str(DRIVER), str(room)),
        wake_alone_s=wake_alone_s,
    )


def try_out(tmp_path: Path, test: Test, **more: object) -> None:
    async def go() -> None:
        async with running(tmp_path, **more) as run:  # type: ignore[arg-type]
            await test(run)

    asyncio.run(go())


@pytest.mark.parametrize("groups", [False, True], ids=["by signals", "by its group"])
def test_a_frozen_attempt_stands_still_with_all_its_children(tmp_path: Path, groups: bool) -> None:
    async def freeze_and_thaw(run: Running) -> None:
        for _ in range(5):
            await run.engine.freeze(JOB, 1, by=PLAN)
            assert await run.stands_still()
            if not groups:
                # One that waits for the child of a vfork stands in the kernel.
                assert all(is_frozen(pid) or is_stopping(pid) for pid in run.processes)

            await run.engine.thaw(JOB, 1, by=PLAN)
            assert await run.prints()
            assert not any(map(is_frozen, run.processes))

    try_out(tmp_path, freeze_and_thaw, groups=groups)


def test_twice_is_once_and_everybody_must_let_go(tmp_path: Path) -> None:
    async def freeze(run: Running) -> None:
        await run.engine.freeze(JOB, 1, by=PLAN)
        await run.engine.freeze(JOB, 1, by=PROBE)
        await run.engine.freeze(JOB, 1, by=PROBE)

        await run.engine.thaw(JOB, 1, by=PROBE)
        await run.engine.thaw(JOB, 1, by=PROBE)
        assert await run.stands_still()

        await run.engine.thaw(JOB, 1, by=PLAN)
        assert await run.prints()

    try_out(tmp_path, freeze)


def test_an_attempt_ends_as_it_would_have(tmp_path: Path) -> None:
    async def disturb(run: Running) -> None:
        for _ in range(4):
            await run.engine.freeze(JOB, 1, by=PLAN)
            await run.engine.thaw(JOB, 1, by=PLAN)

        assert await run.until(Finished, Failed) == Finished(JOB, 1)
        assert (run.folder / "rank-0.log").read_text().split() == [str(i) for i in range(150)]

    try_out(tmp_path, disturb, count=150)


def test_suspending_uses_the_driver_and_resuming_gives_all_back(tmp_path: Path) -> None:
    async def suspend(run: Running) -> None:
        assert run.engine.stops == {Rung.FREEZE, Rung.SUSPEND}
        await run.engine.suspend(JOB, 1, by=PLAN)
        assert any(run.room.iterdir())
        assert await run.stands_still()

        await run.engine.thaw(JOB, 1, by=PLAN)
        assert not any(run.room.iterdir())
        assert await run.prints()

    try_out(tmp_path, suspend)


def test_a_frozen_attempt_can_be_suspended_and_frozen_again(tmp_path: Path) -> None:
    async def go_down_and_up(run: Running) -> None:
        await run.engine.freeze(JOB, 1, by=PROBE)
        await run.engine.suspend(JOB, 1, by=PLAN)
        assert any(run.room.iterdir())

        await run.engine.thaw(JOB, 1, by=PLAN)
        assert not any(run.room.iterdir())
        assert await run.stands_still()

        await run.engine.thaw(JOB, 1, by=PROBE)
        assert await run.prints()

    try_out(tmp_path, go_down_and_up)


def test_what_the_driver_refuses_runs_on(tmp_path: Path) -> None:
    async def suspend(run: Running) -> None:
        (run.room / "refuse").touch()

        with pytest.raises(EngineError, match="801"):
            await run.engine.suspend(JOB, 1, by=PLAN)

        assert await run.prints()

    try_out(tmp_path, suspend)


def test_a_device_without_room_is_tried_again(tmp_path: Path) -> None:
    async def resume(run: Running) -> None:
        await run.engine.suspend(JOB, 1, by=PLAN)
        (run.room / "full").touch()
        with pytest.raises(EngineError, match="OUT_OF_MEMORY"):
            await run.engine.thaw(JOB, 1, by=PLAN)
        assert await run.stands_still()

        (run.room / "full").unlink()

        until = time.monotonic() + LIMIT_S
        while find_state(run) != AWAKE and time.monotonic() < until:
            await asyncio.sleep(0.05)
        assert find_state(run) == AWAKE
        assert await run.prints()

    try_out(tmp_path, resume)


def find_state(run: Running) -> str:
    state = read_state(run.folder)
    assert state is not None
    return state.state


@pytest.mark.parametrize("rung", [FROZEN, SUSPENDED])
@pytest.mark.parametrize("groups", [False, True], ids=["by signals", "by its group"])
def test_an_attempt_that_sleeps_is_stopped_with_grace(
    tmp_path: Path, rung: str, groups: bool
) -> None:
    async def stop(run: Running) -> None:
        await (run.engine.freeze if rung == FROZEN else run.engine.suspend)(JOB, 1, by=PLAN)
        pids = run.processes

        await run.engine.stop(JOB, 1, 60.0)

        assert await run.until(Stopped, Failed) == Stopped(JOB, 1)
        assert all(start_time(pid) is None for pid in pids)

    try_out(tmp_path, stop, groups=groups)


def test_an_engine_that_begins_anew_finds_it_asleep(tmp_path: Path) -> None:
    async def restart(run: Running) -> None:
        await run.engine.freeze(JOB, 1, by=PLAN)
        await run.engine.freeze(JOB, 1, by=PROBE)
        await run.engine.close()

        run.engine = open_engine(run.state, run.room)
        await run.engine.adopt([(JOB, 1)])
        await run.until(Started)
        assert await run.stands_still()

        await run.engine.thaw(JOB, 1, by=PLAN)
        assert await run.prints(), "nobody probes any more"

    try_out(tmp_path, restart)


def test_nothing_stays_frozen_after_a_service_that_is_gone(tmp_path: Path) -> None:
    async def leave(run: Running) -> None:
        await run.engine.freeze(JOB, 1, by=PLAN)
        await run.engine.close()

        until = time.monotonic() + LIMIT_S
        while any(map(is_frozen, run.processes)) and time.monotonic() < until:
            await asyncio.sleep(0.05)

        assert not any(map(is_frozen, run.processes))
        run.engine = open_engine(run.state, run.room)
        await run.engine.adopt([(JOB, 1)])

    try_out(tmp_path, leave, wake_alone_s=1.0)


def test_an_agent_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    async def kill(run: Running) -> None:
        await run.engine.freeze(JOB, 1, by=PLAN)
        pids = run.processes

        os.kill(run.agent, signal.SIGKILL)

        event = await run.until(Failed, Finished, Stopped)
        assert isinstance(event, Failed)
        assert event.lost
        assert all(start_time(pid) is None for pid in pids)
        with pytest.raises(NotRunningError, match="does not run"):
            await run.engine.freeze(JOB, 1, by=PLAN)
        await run.engine.thaw(JOB, 1, by=PLAN)

    try_out(tmp_path, kill)


def test_a_time_limit_does_not_count_while_it_sleeps(tmp_path: Path) -> None:
    async def sleep(run: Running) -> None:
        await run.engine.freeze(JOB, 1, by=PLAN)
        await asyncio.sleep(8.5)
        assert find_state(run) == FROZEN

        await run.engine.thaw(JOB, 1, by=PLAN)

        event = await run.until(Failed, Finished)
        assert isinstance(event, Failed)
        assert "time limit" in event.reason

    try_out(tmp_path, sleep, time_limit_s=8.0)
