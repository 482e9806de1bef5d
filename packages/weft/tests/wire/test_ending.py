"""A task or process that is asked to end does, whatever it is in the middle of."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from weft.engines.attempts.rounds import BackgroundTasks
from weft.runtime.loop.background import Repeated
from weft.wire.ending import AGAIN_S, end_process, end_tasks


class Spoilt:
    """Work that turns its cancellation into another error, as `kill` of an ended process did."""

    def __init__(self) -> None:
        self.turns, self.begun = 0, asyncio.Event()

    async def turn(self) -> None:
        self.turns += 1
        self.begun.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise ProcessLookupError("it has ended") from None


class Watching(Repeated):
    every_s: ClassVar[float] = 0.0
    trouble: ClassVar[str] = "nothing is seen"

    def __init__(self, work: Spoilt) -> None:
        self._work = work

    async def poll(self) -> None:
        await self._work.turn()


def test_rounds_of_an_engine_end_though_one_spoils_its_cancellation() -> None:
    async def go() -> int:
        work, rounds = Spoilt(), BackgroundTasks()
        rounds.begin("see nodes", work.turn)
        await work.begun.wait()
        await asyncio.wait_for(rounds.close(), 60)
        return work.turns

    assert asyncio.run(go()) == 1


def test_repeated_work_ends_though_a_turn_spoils_its_cancellation() -> None:
    async def go() -> int:
        work = Spoilt()
        watching = Watching(work)
        watching.open()
        await work.begun.wait()
        await asyncio.wait_for(watching.close(), 60)
        return work.turns

    assert asyncio.run(go()) == 1


def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed = []

    async def deaf() -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError as error:
                swallowed.append(error)

    async def go() -> None:
        task = asyncio.create_task(deaf())
        await asyncio.sleep(0)
        await asyncio.wait_for(end_tasks(task), 60 * AGAIN_S)

    asyncio.run(go())
    assert len(swallowed) == 2


@pytest.mark.parametrize("held", [False, True])
def test_a_process_that_has_ended_is_ended(tmp_path: Path, held: bool) -> None:
    child = "import time; time.sleep(1000)" if not held else "pass"

    async def go() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", child)
        if held:
            await process.wait()
        return await end_process(process)

    assert asyncio.run(go()) == (0 if held else -9)
