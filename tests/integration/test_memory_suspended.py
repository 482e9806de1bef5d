"""Allocations that wait in a service with real agents: suspensions, kills, freezes, lost agents."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import struct
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.stand_in_cuda import GLIBC, build
from tests.integration.stand_in_cuda.engine import Machine, ToldJob
from tests.integration.test_order_of_memory import runs
from tests.waiting import until
from weft.core.model.job import JobId
from weft.runtime.loop.driver import Driver
from weft.wire.attempt import folder_of
from weft.wire.processes import alive, descendants
from weft.wire.sleep import SUSPENDED, read_state

pytestmark = GLIBC
MOST_LOST = 4  # agents of a job: more in a row count as its own failure
FAULTS = int(os.environ.get("WEFT_CHAOS_FAULTS", "24"))
# Takes memory in two parts, so that several wait for each other, and gives it back.
TAKES = "for i in 1 2 3; do echo malloc {}; sleep {}; echo malloc {}; sleep {}; {}; done | $PROGRAM"


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


def command_of(draw: random.Random) -> str:
    frees = "; ".join(f"echo free $((2 * i - {part}))" for part in (1, 0))
    sizes, pauses = (draw.choice((30_000, 45_000)) for _ in "ab"), ("1", "1")
    first, second = sizes
    return TAKES.format(first, pauses[0], second, pauses[1], frees)


class Chaos:
    """Faults by a seed in a service whose jobs wait for memory."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine, self.draw = machine, random.Random(seed)
        self.counts: dict[str, int] = {}
        self.lost: Counter[str] = Counter()
        self.suspended: set[Path] = set()
        self.submitted = 0

    async def run(self, faults: int) -> None:
        while sum(self.counts.values()) < faults:
            async with self.machine.serving() as driver:
                await self._keep_busy(driver, faults)
            self._count("services replaced")
        async with self.machine.serving() as driver:
            for number in range(self.submitted):
                status = await driver.ended(JobId(f"job-{number}"))
                assert status.state == "succeeded", (number, status.record.reason)
        assert self.held() == 0

    async def _keep_busy(self, driver: Driver, faults: int) -> None:
        """Faults until the service is to be replaced."""
        until_next = self.draw.randint(6, 12)
        for _ in range(until_next):
            active = sum(not record.outcome for record in driver.ledger.jobs.live.values())
            while active < 5:
                name, command = f"job-{self.submitted}", command_of(self.draw)
                await driver.submit(self.machine.job(name, command))
                self.submitted, active = self.submitted + 1, active + 1
            await asyncio.sleep(self.draw.uniform(0.2, 1.0))
            self._note_suspended()
            if sum(self.counts.values()) >= faults:
                return
            self._do_fault(driver)

    def _do_fault(self, driver: Driver) -> None:
        what = self.draw.choice(("program killed", "frozen", "agent lost", "book killed"))
        files = (self.machine.state / "jobs").glob("*/*/claim.json")
        claims = [(file.parts[-3], json.loads(file.read_text())) for file in files]
        jobs = {int(c["pid"]): job for job, c in claims if alive(c["pid"], c["began"])}
        agents = {agent: below for agent in jobs if (below := descendants(agent))}
        if what == "book killed":
            pid = driver.engine._book.pid  # type: ignore[attr-defined] # of a local one
            if pid is not None:
                self._kill(pid, signal.SIGKILL, what)
            return
        if not agents:
            return
        agent = self.draw.choice(sorted(agents))
        if what == "agent lost":
            if self.lost[jobs[agent]] < MOST_LOST:
                self.lost[jobs[agent]] += 1
                self._kill(agent, signal.SIGKILL, what)
            return
        program = agents[agent][-1]
        if what == "frozen":
            self._kill(program, signal.SIGSTOP, what)
            with suppress(ProcessLookupError):
                os.kill(program, signal.SIGCONT)
        else:
            self._kill(program, signal.SIGKILL, what)

    def _kill(self, pid: int, number: int, what: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            self._count(what)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _note_suspended(self) -> None:
        for folder in (self.machine.state / "jobs").glob("*/*/"):
            state = read_state(folder)
            if state is not None and state.state == SUSPENDED and folder not in self.suspended:
                self.suspended.add(folder)
                self._count("suspended")

    def held(self) -> int:
        rows = struct.iter_unpack("qQQ", self.machine.gpu.read_bytes()[8:])
        return sum(held + aside for pid, held, aside in rows if Path(f"/proc/{pid}").exists())


@pytest.mark.slow
def test_all_jobs_end_whatever_happens_while_their_allocations_wait(machine: Machine) -> None:
    chaos = Chaos(machine, 47)

    asyncio.run(chaos.run(FAULTS))

    sys.stdout.write(f"{chaos.counts} {chaos.submitted} jobs\n")
    assert chaos.counts.get("suspended")
