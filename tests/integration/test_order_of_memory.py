"""Memory that becomes free goes by the policy's order: from its decision to the book of a GPU."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.stand_in_cuda import GLIBC, build
from tests.integration.stand_in_cuda.engine import Machine, ToldJob
from tests.waiting import until
from weft.core.events.event import Decided, PriorityChanged
from weft.core.model.job import JobId, Stage
from weft.core.state.cells import TableColumns
from weft.runtime.loop.driver import Driver
from weft.wire.memory_waits import read_order, read_waits

pytestmark = GLIBC


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built")).parent


@pytest.fixture
def machine(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, built, monkeypatch)


@pytest.fixture
def jobs(machine: Machine) -> Iterator[list[ToldJob]]:
    made = [ToldJob(machine, name) for name in ("large", "early", "late")]
    yield made
    for job in made:
        job.close()


def runs(driver: Driver, job: ToldJob) -> bool:
    table = driver.scheduler.state.table
    row = table.find(job.name)
    return row is not None and table.get(row, TableColumns.STAGE) == Stage.RUNNING


async def until_waits(machine: Machine, job: ToldJob) -> None:
    await until(lambda: any(row.job == job.name for row in read_waits(machine.state)))


async def end_all(driver: Driver, jobs: list[ToldJob]) -> None:
    for job in jobs:
        await driver.cancel(job.name)
        await driver.ended(job.name)
    state = driver.scheduler.state
    await until(lambda: not state.releasing)


async def start_and_fill(driver: Driver, jobs: list[ToldJob]) -> str:
    """All of them on the GPU, of which the first holds nearly all: the slot of that."""
    slot = ""
    for job in jobs:
        await driver.submit(job.job)
        await until(partial(runs, driver, job))
        slot = slot or await job.ask("malloc 90000")
    return slot


def test_a_priority_that_changed_while_jobs_wait_counts(
    machine: Machine, jobs: list[ToldJob]
) -> None:
    async def main() -> None:
        large, early, late = jobs
        async with machine.serving() as driver:
            slot = await start_and_fill(driver, jobs)
            early.send("malloc 60000")
            await until_waits(machine, early)
            late.send("malloc 60000")
            await until_waits(machine, late)
            await driver.write_down(PriorityChanged(late.name, 5.0))
            await until(lambda: read_order(machine.state).get("late", ())[:1] == (-5.0,))

            assert await large.ask(f"free {slot}") == "0"

            assert await late.answer() == "1"
            assert not early.has_answered()
            await driver.cancel(late.name)
            assert await early.answer() == "1"
            await end_all(driver, [large, early])

    asyncio.run(main())


def test_the_order_outlives_the_service_and_the_book(machine: Machine, jobs: list[ToldJob]) -> None:
    async def main() -> None:
        large, early, late = jobs
        state = machine.state
        async with machine.serving() as driver:
            slot = await start_and_fill(driver, jobs)
            await driver.write_down(PriorityChanged(late.name, 5.0))
            await until(lambda: read_order(state).get("late", ())[:1] == (-5.0,))
        order = state / "memory-order.json"
        left = order.read_text()
        order.unlink()  # as if it had died before it wrote
        async with machine.serving() as driver:
            await until(lambda: order.exists() and order.read_text() == left)
            engine = driver.engine
            book = engine._book.pid  # type: ignore[attr-defined] # of a local one
            os.kill(book, signal.SIGKILL)
            await until(lambda: engine._book.pid not in (None, book))  # type: ignore[attr-defined]
            early.send("malloc 60000")
            await until_waits(machine, early)
            late.send("malloc 60000")
            await until_waits(machine, late)

            assert await large.ask(f"free {slot}") == "0"

            assert await late.answer() == "1"
            assert not early.has_answered()
            orders = [
                event.memory_order
                for _, _, event in driver.store.since(0)
                if isinstance(event, Decided) and event.memory_order
            ]
            assert len(orders) < 6  # said again only where it changed
            assert any(places.get(JobId("late"), ())[:1] == (-5.0,) for places in orders)
            await end_all(driver, jobs)

    asyncio.run(main())
