"""Several nodes of processes: the base of all engines beyond one machine, with real agents."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.waiting import until
from weft.core.errors import EngineError
from weft.core.events.event import Noticed
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.core.stops import PLAN
from weft.engines.attempts import asleep as sleeping
from weft.engines.fleet import asleep
from weft.engines.fleet.engine import FleetEngine
from weft.engines.fleet.port import SharedFolder
from weft.engines.fleet.processes import AWAY, ProcessEngine, ProcessManager
from weft.run_terms import Processes
from weft.testing.check_engine import CHECKS
from weft.testing.engine_subject import Check, Subject, shell_job, shell_subject
from weft.wire.attempt import CLAIM, SPEC, folder_of, read_json
from weft.wire.sleep import AWAKE, FROZEN, read_request, read_state


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


class Remarks(SharedFolder):
    """Something of every folder is left out."""

    async def fetch(self, folders: Sequence[Path]) -> Mapping[Path, Sequence[str]]:
        return {folder: ["its checkpoints are not brought"] for folder in folders}


def test_what_is_left_out_of_an_attempts_files_is_said_of_the_job(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def start() -> None:
        manager = ProcessManager(state / "fleet", 1, 1, ())
        engine = FleetEngine(manager, state, "processes", Remarks())
        (node,) = await engine.nodes()
        await engine.adopt(())
        job = shell_job("sent", 1, COUNT)
        await engine.start(job, Allocation((Slice(node.id, (0,)),)), 1)
        news = engine.events()
        while not isinstance(event := await anext(news), Noticed):
            pass
        assert event == Noticed(job.id, 1, "warning", "its checkpoints are not brought")
        await engine.stop(job.id, 1, 5.0)
        await until(lambda: not engine.running())
        await engine.close()

    asyncio.run(start())


def test_processes_of_whole_nodes_are_numbered_from_zero(tmp_path: Path) -> None:
    """The second node's was called rank 4 on nodes of four GPUs, as its first GPU is."""
    state = tmp_path / "state"

    async def run() -> dict[int, str]:
        engine = ProcessEngine(state, count=2, slots=4)
        nodes = await engine.nodes()
        await engine.adopt(())
        command = ("sh", "-c", "basename $WEFT_ATTEMPT_DIR")
        launch = Launch(command, workdir="/", processes=Processes.ONE)
        job = Job(JobId("wide"), demand=Demand(8), launch=launch)
        on = Allocation(tuple(Slice(node.id, (0, 1, 2, 3)) for node in nodes))
        await engine.start(job, on, 1)
        await until(lambda: not engine.running())
        logs = engine.logs(job.id, 1)
        await engine.close()
        return {rank: path.read_text().strip() for rank, path in logs.items()}

    assert asyncio.run(run()) == {0: "n1", 1: "n2"}


def test_a_process_keeps_its_rank_until_the_first_one_has_a_file(tmp_path: Path) -> None:
    engine = ProcessEngine(tmp_path, count=2, slots=4)
    whole = folder_of(tmp_path, "wide", 1)
    for node in ("n1", "n2"):
        (whole / node).mkdir(parents=True)
        (whole / node / SPEC).touch()

    (whole / "n2" / "rank-4.log").touch()
    assert engine.logs(JobId("wide"), 1) == {4: whole / "n2" / "rank-4.log"}

    (whole / "n1" / "rank-0.log").touch()
    assert [*engine.logs(JobId("wide"), 1)] == [0, 1]


COUNT = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done"


async def start_wide(engine: ProcessEngine, state: Path) -> tuple[Job, list[Path]]:
    """A gang of two nodes, and what its ranks print into."""
    nodes = await engine.nodes()
    await engine.adopt(())
    job = shell_job("wide", 2, COUNT)
    await engine.start(job, Allocation(tuple(Slice(node.id, (0,)) for node in nodes)), 1)
    await until(lambda: len(engine.logs(job.id, 1)) == 2)
    logs = [*engine.logs(job.id, 1).values()]
    await until(lambda: all(path.read_text().count("\n") > 3 for path in logs))
    return job, logs


async def go_on(logs: Sequence[Path]) -> None:
    before = [path.stat().st_size for path in logs]
    await until(lambda: all(p.stat().st_size > b + 20 for p, b in zip(logs, before, strict=True)))


def test_a_part_that_cannot_be_frozen_leaves_the_others_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleeping, "FREEZE_S", 2.0)
    state = tmp_path / "state"

    async def freeze() -> None:
        engine = ProcessEngine(state, count=2, slots=1)
        job, logs = await start_wide(engine, state)
        deaf = read_json(logs[1].parent / CLAIM)
        assert deaf is not None
        os.kill(deaf["pid"], signal.SIGSTOP)
        try:
            with pytest.raises(EngineError, match="does not answer"):
                await engine.freeze(job.id, 1, by=PLAN)
            await go_on(logs[:1])
            assert read_request(logs[0].parent).state == AWAKE  # type: ignore[union-attr]
        finally:
            os.kill(deaf["pid"], signal.SIGCONT)
        await go_on(logs)
        await engine.stop(job.id, 1, 5.0)
        await until(lambda: not engine.running())
        await engine.close()

    asyncio.run(freeze())


def test_a_frozen_gang_wakes_when_its_service_is_gone_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessEngine, "wake_alone_s", 6.0)
    monkeypatch.setattr(asleep, "BEAT_S", 0.1)
    state = tmp_path / "state"

    async def leave() -> None:
        engine = ProcessEngine(state, count=2, slots=1)
        job, logs = await start_wide(engine, state)
        await engine.freeze(job.id, 1, by=PLAN)
        for _ in range(3):  # its request is renewed as long as the service is there
            before = read_request(logs[1].parent)
            await until(lambda: read_request(logs[1].parent) != before)  # noqa: B023
        assert [read_state(path.parent).state for path in logs] == [FROZEN, FROZEN]  # type: ignore[union-attr]
        await engine.close()
        await go_on(logs)

        again = ProcessEngine(state, count=2, slots=1)
        assert await again.adopt({(job.id, 1)}) == {(job.id, 1)}
        await again.stop(job.id, 1, 5.0)
        await until(lambda: not again.running())
        await again.close()

    asyncio.run(leave())
