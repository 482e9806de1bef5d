"""Allocations that wait in a service with real agents: who waits for each other is suspended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.stand_in_cuda import GLIBC, build
from tests.integration.stand_in_cuda.engine import Machine, ToldJob
from tests.integration.test_order_of_memory import runs
from tests.waiting import until
from weft.core.model.job import JobId
from weft.wire.attempt import folder_of
from weft.wire.sleep import SUSPENDED, read_state

pytestmark = GLIBC


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built")).parent


@pytest.fixture
def machine(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, built, monkeypatch)


def is_suspended(machine: Machine, job: JobId) -> bool:
    state = read_state(folder_of(machine.state, job, 1))
    return state is not None and state.state == SUSPENDED


def test_of_two_that_wait_for_each_other_one_is_suspended_and_both_end(machine: Machine) -> None:
    large, small = ToldJob(machine, "large"), ToldJob(machine, "small")

    async def main() -> None:
        async with machine.serving() as driver:
            for job, size in ((large, 50_000), (small, 40_000)):
                await driver.submit(job.job)
                await until(lambda job=job: runs(driver, job))  # type: ignore[misc]
                await job.ask(f"malloc {size}")
            large.send("malloc 30000")
            small.send("malloc 30000")

            assert await large.answer() == "2"
            await until(lambda: is_suspended(machine, small.name))
            assert not small.has_answered()
            for slot in (1, 2):
                await large.ask(f"free {slot}")
            assert await small.answer() == "2"
            assert await small.ask("free 1") == "0"
            for job in (large, small):
                job.send("exit")
                status = await driver.ended(job.name)
                assert (status.state, status.record.starts) == ("succeeded", 1)

    asyncio.run(main())
    large.close()
    small.close()
