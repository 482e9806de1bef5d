"""Several nodes of processes: the base of all engines beyond one machine, with real agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from weft.core.errors import EngineError
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.engines.fleet.engine import FleetEngine
from weft.engines.fleet.port import SharedFolder
from weft.engines.fleet.processes import AWAY, ProcessEngine, ProcessManager
from weft.testing.check_engine import CHECKS
from weft.testing.engine_subject import Check, Subject, shell_subject


def subject(state: Path) -> Subject:
    fleet = state / "fleet"

    def remove(name: str) -> None:
        (fleet / name).unlink()

    def down(node: NodeId) -> str:
        return f"{node}.down"

    return shell_subject(
        lambda: ProcessEngine(state, count=2, slots=2),
        where="$(basename $WEFT_ATTEMPT_DIR)",
        kill_node=lambda node: (fleet / down(node)).touch(),
        restore_node=lambda node: remove(down(node)),
        kill_controller=lambda: (fleet / AWAY).touch(),
        restore_controller=lambda: remove(AWAY),
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_fleet_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state")))


class BrokenChannel(SharedFolder):
    """Nothing can be sent."""

    async def send(self, files: Sequence[Path]) -> None:
        raise EngineError("the way is blocked")


def test_an_attempt_whose_files_cannot_be_sent_leaves_no_mark(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def start() -> None:
        manager = ProcessManager(state / "fleet", 1, 1, ())
        engine = FleetEngine(manager, state, "processes", BrokenChannel())
        (node,) = await engine.nodes()
        await engine.adopt(())
        job = Job(JobId("sent"), launch=Launch(("true",), workdir="/"))
        with pytest.raises(EngineError, match="blocked"):
            await engine.start(job, Allocation((Slice(node.id, (0,)),)), 1)
        assert engine.running() == set()
        await engine.close()

    asyncio.run(start())
