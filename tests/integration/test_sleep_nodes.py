"""`weft serve --sleep-nodes`: idle nodes are drained and switched off, and woken when needed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.waiting import until
from weft.app.serve.live import Live, Settings
from weft.app.serve.sleep_nodes import SleepSettings
from weft.core.errors import InvalidConfig
from weft.core.model.job import Demand, Job, JobId

HOUR = 3600.0
ENGINE = "simulated:cluster=4x4:a100,speed=3600"


def job(name: str, gpus: int, hours: float) -> Job:
    return Job(JobId(name), demand=Demand(gpus), hints={"duration_s": hours * HOUR})


def settings(folder: Path) -> Settings:
    note = folder / "commands"
    commands = (f"sh -c 'echo {word} {{node}} >> {note}'" for word in ("off", "on"))
    sleep = SleepSettings(1, 60.0, *commands)
    state = folder / "state"
    return Settings(
        engine=ENGINE, state=state, policy="fifo", decide_in="service", sleep_nodes=sleep
    )


def test_idle_nodes_are_switched_off_and_on_again_also_by_a_later_service(tmp_path: Path) -> None:
    note = tmp_path / "commands"

    def count_lines(word: str) -> int:
        return note.read_text().count(word) if note.exists() else 0

    async def morning() -> None:
        service = Live(settings(tmp_path))
        await service.open()
        await service.driver.submit(job("long", 4, 2_000.0))
        await until(lambda: count_lines("off a100") == 2)
        words = [word for _, word in service.driver.nodes()]
        await service.close()
        assert sorted(words) == ["drained", "drained", "up", "up"]

    async def evening() -> None:
        service = Live(settings(tmp_path))
        await service.open()
        await service.driver.submit(job("wide", 12, 0.5))
        await until(lambda: count_lines("on a100") == 2)
        await service.driver.ended(JobId("wide"))
        await service.close()

    asyncio.run(morning())
    asyncio.run(evening())


def test_a_command_must_name_the_node_and_have_its_opposite() -> None:
    with pytest.raises(InvalidConfig, match="a command to wake them"):
        SleepSettings(1, sleep="off {node}")
    with pytest.raises(InvalidConfig, match=r"has no .node. in it"):
        SleepSettings(1, sleep="off", wake="on {node}")


def test_clusters_bring_their_own_commands() -> None:
    assert SleepSettings(1).on("slurm").wake == "scontrol update NodeName={node} State=POWER_UP"
    assert SleepSettings(1).on("kubernetes").sleep == "kubectl cordon {node}"
    assert SleepSettings(1).on("local").sleep == ""
