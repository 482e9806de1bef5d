"""The local engine with real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from weft.core.launch import Launch, Processes
from weft.core.model import Demand, Job, JobId
from weft.engines.local import LocalEngine
from weft.testing.check_engine import CHECKS, Check, Subject

STUBBORN = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


def job_of(command: tuple[str, ...]):  # type: ignore[no-untyped-def]
    def make(name: str, gpus: int) -> Job:
        return Job(
            JobId(name),
            demand=Demand(gpus),
            launch=Launch(command, workdir="/", processes=Processes.PER_GPU),
        )

    return make


def script(name: str, gpus: int, text: str) -> Job:
    made: Job = job_of(("sh", "-c", text))(name, gpus)
    return made


def subject(state: Path) -> Subject:
    return Subject(
        make=lambda: LocalEngine(state, slots=2, warm=False, cpu=True),
        job=job_of(("sh", "-c", "echo hello from rank $RANK of $WORLD_SIZE")),
        endless=job_of(("sleep", "1000")),
        failing=job_of(("sh", "-c", "echo no such luck >&2; exit 3")),
        stubborn=job_of(("sh", "-c", STUBBORN)),
        script=script,
        printed="hello from rank",
        exact=True,
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_local_engine_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state")))
