"""Several nodes of processes: the base of all engines beyond one machine, with real agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from weft.core.launch import Launch, Processes
from weft.core.model import Demand, Job, JobId, NodeId
from weft.engines.fleet.processes import AWAY, ProcessEngine
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
    fleet = state / "fleet"

    def remove(name: str) -> None:
        (fleet / name).unlink()

    def down(node: NodeId) -> str:
        return f"{node}.down"

    return Subject(
        make=lambda: ProcessEngine(state, count=2, slots=2),
        job=job_of(("sh", "-c", "echo hello from rank $RANK of $WORLD_SIZE")),
        endless=job_of(("sleep", "1000")),
        failing=job_of(("sh", "-c", "echo no such luck >&2; exit 3")),
        stubborn=job_of(("sh", "-c", STUBBORN)),
        script=script,
        printed="hello from rank",
        where="$(basename $WEFT_ATTEMPT_DIR)",
        kill_node=lambda node: (fleet / down(node)).touch(),
        restore_node=lambda node: remove(down(node)),
        kill_controller=lambda: (fleet / AWAY).touch(),
        restore_controller=lambda: remove(AWAY),
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_fleet_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state")))
