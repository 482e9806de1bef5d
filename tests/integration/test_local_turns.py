"""Real trainings on the local engine begin and end to take turns while they run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.serving import serving
from tests.integration.test_tokens import look
from tests.waiting import until, wait_until
from weft.core.events.event import Event, Reported, Started, Stopped
from weft.core.model.job import Allocation, Discipline, Job, JobId, NodeId, Sharing, Slice, Tier
from weft.core.model.launch import Launch
from weft.engines.local import LocalEngine
from weft.run_terms import Processes
from weft.wire.attempt import short_path

SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2] / "packages/weft-train/tests")!r})
from train_script import train
train(sys.argv[1], epochs=100_000)
"""


class Pair:
    """A job on one device and a gang of two, one of them on the same device."""

    def __init__(self, folder: Path, discipline: str = "") -> None:
        self.folder = folder
        self.engine = LocalEngine(
            folder / "state", slots=2, warm=False, cpu=True, name="here", discipline=discipline
        )
        script = folder / "job.py"
        script.write_text(SCRIPT)
        self.on = {"one": (0,), "two": (0, 1)}
        self.jobs = {
            name: Job(
                JobId(name),
                launch=Launch(
                    (sys.executable, str(script), str(folder / f"seen-{name}")),
                    str(folder),
                    processes=Processes.PER_GPU,
                ),
            )
            for name in self.on
        }
        self.told: list[Event] = []

    def terms(self, name: str, discipline: Discipline) -> Allocation:
        tier = Tier.OPPORTUNISTIC if name == "two" else Tier.GUARANTEED
        sharing = Sharing(0.5, tier=tier, phase=0.25 * (name == "two"), discipline=discipline)
        return Allocation((Slice(NodeId("here"), self.on[name]),), sharing)

    async def start(self) -> None:
        for name, job in self.jobs.items():
            await self.engine.start(job, self.terms(name, Discipline.NONE), 1)

    async def turn(self, discipline: Discipline) -> None:
        for name in self.jobs:
            await self.engine.adjust(JobId(name), 1, self.terms(name, discipline))

    async def listen(self) -> None:
        async for event in self.engine.events():
            self.told.append(event)

    def steps(self, name: str) -> float:
        of = [e for e in self.told if isinstance(e, Reported) and e.job == name]
        return (of[-1].report.steps or 0.0) if of else 0.0

    def members(self, discipline: Discipline) -> dict[str, dict[str, float]]:
        path = short_path(self.folder / "state" / f"tokens-{discipline}.sock")
        return {member.job: dict(member.values) for member in look(path) if member.job}


def test_running_jobs_change_their_discipline_without_a_restart(tmp_path: Path) -> None:
    async def go() -> list[Event]:
        pair = Pair(tmp_path)
        await pair.engine.adopt(())
        listening = asyncio.create_task(pair.listen())
        await pair.start()
        await until(lambda: min(pair.steps("one"), pair.steps("two")) > 0)
        before = Discipline.NONE
        for discipline in (Discipline.WORK_CONSERVING, Discipline.LOCKSTEP, Discipline.NONE):
            await pair.turn(discipline)
            if discipline is not Discipline.NONE:
                await until(
                    lambda now=discipline: in_turns(pair.members(now))  # type: ignore[misc]
                )
            if before is not Discipline.NONE:
                await until(lambda was=before: not pair.members(was))  # type: ignore[misc]
            steps = {name: pair.steps(name) for name in pair.jobs}
            await until(
                lambda then=steps: all(pair.steps(name) > s for name, s in then.items())  # type: ignore[misc]
            )
            before = discipline
        for name in pair.jobs:
            await pair.engine.stop(JobId(name), 1, 20.0)
        await until(lambda: sum(isinstance(e, Stopped) for e in pair.told) == 2)
        listening.cancel()
        await pair.engine.close()
        return pair.told

    done = asyncio.run(go())

    assert sum(isinstance(event, Started) for event in done) == 2


@pytest.mark.slow
def test_an_engine_may_give_one_discipline_to_all(tmp_path: Path) -> None:
    async def go() -> None:
        pair = Pair(tmp_path, Discipline.WORK_CONSERVING)
        await pair.engine.adopt(())
        listening = asyncio.create_task(pair.listen())
        await pair.start()  # each is promised none
        await until(lambda: in_turns(pair.members(Discipline.WORK_CONSERVING)))
        for name in pair.jobs:
            await pair.engine.stop(JobId(name), 1, 20.0)
        await until(lambda: sum(isinstance(event, Stopped) for event in pair.told) == 2)
        listening.cancel()
        await pair.engine.close()

    asyncio.run(go())


def in_turns(members: dict[str, dict[str, float]]) -> bool:
    """Whether both have had the device in turns; the gang asks for both of its devices."""
    return (
        set(members) == {"one", "two"}
        and members["one"].get("used_s.gpu:0", 0.0) > 0.0
        and members["two"].get("used_s.gpu:1", 0.0) > 0.0
    )


@pytest.mark.slow
def test_muri_brings_a_second_job_in_step_with_one_that_runs(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    stages = {"io": (0.091, 0.003, 0.003, 0.003), "net": (0.003, 0.003, 0.003, 0.091)}
    names: dict[str, str] = {}
    path = short_path(tmp_path / "state" / "tokens-lockstep.sock")
    engine = "local:slots=1,warm=false,cpu=true,name=here"

    def submit(kind: str) -> None:
        hints = {f"stage{i}_s": s for i, s in enumerate(stages[kind])}
        body = {
            "command": [sys.executable, str(script), str(tmp_path / f"seen-{kind}")],
            "workdir": str(tmp_path),
            "preemptible": True,
            "hints": {**hints, "iteration_s": 0.1, "duration_s": 9e5},
        }
        names[kind] = client.post("/api/v1/jobs", json=body).json()["id"]

    def job(kind: str) -> dict[str, Any]:
        answer: dict[str, Any] = client.get(f"/api/v1/jobs/{names[kind]}").json()
        return answer

    def members() -> set[str]:
        return {member.job for member in look(path) if member.job}

    with serving(engine, tmp_path / "state", "muri") as client:
        submit("io")
        wait_until(lambda: job("io")["speed"])
        assert members() == set()
        submit("net")
        wait_until(lambda: members() == set(names.values()))
        client.delete(f"/api/v1/jobs/{names['net']}")
        wait_until(lambda: members() == set())
        shown = job("io")
        client.delete(f"/api/v1/jobs/{names['io']}")
        wait_until(lambda: not list((tmp_path / "state" / "live").iterdir()))  # all have left

    assert (shown["state"], shown["attempt"], shown["restarts"]) == ("running", 1, 0)
