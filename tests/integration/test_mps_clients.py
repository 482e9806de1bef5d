"""Jobs of the local engine that are clients of MPS, with a tool that notes what it is asked."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.stand_in_cuda import GLIBC, build
from tests.integration.stand_in_cuda.engine import ENGINE, Machine
from weft.core.model.job import Allocation, Job, NodeId, Slice
from weft.engines.machine.mps import PIPES, may_be_client
from weft.runtime.loop.driver import Driver
from weft.wire.attempt import SPEC, AttemptSpec, folder_of
from weft.wire.identity import Identity
from weft.wire.memory_waits import VARIABLE

pytestmark = GLIBC
FAULT = "echo 'CUDA error: an illegal memory access was encountered'; exit 1"
SMALL = {"gpu_mem_gb": 2.0}
TOOL = "#!/bin/sh\necho $* >> {}\nexit {}\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built")).parent


@pytest.fixture
def machine(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    install(tmp_path)
    return Machine(tmp_path, built, monkeypatch)


def install(folder: Path, code: int = 0) -> None:
    tool = folder / "nvidia-cuda-mps-control"
    tool.write_text(TOOL.format(folder / "asked", code))
    tool.chmod(0o755)


async def run_one(machine: Machine, driver: Driver, job: Job) -> AttemptSpec:
    """The description of the first attempt of a job that has ended."""
    await driver.submit(job)
    await driver.ended(job.id)
    return AttemptSpec.read(folder_of(machine.state, job.id, 1) / SPEC)


def is_client(spec: AttemptSpec) -> bool:
    assert bool(spec.suspender) is (PIPES not in spec.env)  # the driver suspends no client
    assert VARIABLE in spec.env  # memory waits for clients, too
    return PIPES in spec.env


def notices(spec: AttemptSpec) -> str:
    return "; ".join(text for _, text in spec.notices)


def test_jobs_are_clients_unless_they_may_have_to_be_suspended(machine: Machine) -> None:
    async def main() -> None:
        async with machine.serving(ENGINE) as driver:
            unknown = await run_one(machine, driver, machine.job("unknown", "exit 0"))
            small = await run_one(machine, driver, machine.job("s", "exit 0", gpu_mem_gb=12.0))
            large = await run_one(machine, driver, machine.job("l", "exit 0", gpu_mem_gb=13.0))
            alone = await run_one(machine, driver, machine.job("a", "exit 0", shareable=False))

        assert [is_client(spec) for spec in (unknown, small, large, alone)] == [0, 1, 0, 0]
        assert "the need of its program is unknown" in notices(unknown)
        assert "not by MPS: it needs 13 GB and may have to be suspended" in notices(large)
        assert "MPS" not in notices(small) + notices(alone)

    asyncio.run(main())


def test_a_program_that_made_a_fault_is_never_a_client_again(machine: Machine) -> None:
    async def main() -> None:
        async with machine.serving(ENGINE) as driver:
            first = await run_one(machine, driver, machine.job("first", FAULT, **SMALL))
        async with machine.serving(ENGINE) as driver:  # remembered by another service, too
            second = await run_one(machine, driver, machine.job("second", FAULT, **SMALL))
            other = await run_one(machine, driver, machine.job("other", "exit 1", **SMALL))

        assert [is_client(spec) for spec in (first, second, other)] == [True, False, True]
        assert "may have caused a fault" in notices(second)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["fifo", "muri"])
def test_nobody_is_a_client_where_the_policy_does_not_gain_by_it(
    machine: Machine, policy: str
) -> None:
    async def main() -> None:
        async with machine.serving(ENGINE, policy) as driver:
            spec = await run_one(machine, driver, machine.job("a", "exit 0", **SMALL))

        assert not is_client(spec)
        assert not (machine.folder / "asked").exists()

    asyncio.run(main())


def test_jobs_run_without_mps_where_its_daemon_does_not_start(machine: Machine) -> None:
    install(machine.folder, code=1)

    async def main() -> None:
        async with machine.serving(ENGINE) as driver:
            specs = [
                await run_one(machine, driver, machine.job(name, "exit 0", **SMALL))
                for name in ("a", "b")
            ]

        assert [is_client(spec) for spec in specs] == [False, False]
        assert (machine.folder / "asked").read_text().split() == ["-d"]  # tried once

    asyncio.run(main())


def test_a_job_of_another_user_or_of_several_gpus_is_no_client(machine: Machine) -> None:
    here = Slice(NodeId("here"), (0,))
    single, double = Allocation((here,)), Allocation((replace(here, gpus=(0, 1)),))
    job = machine.job("a", "exit 0")

    assert may_be_client(job, single, None)
    assert not may_be_client(job, double, None)
    assert not may_be_client(job, single, Identity(os.getuid() + 1, 0))
