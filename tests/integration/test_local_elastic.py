"""A real PyTorch job on the local engine: grown, shrunk and moved while it trains."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.waiting import LIMIT_S
from weft.core.events.event import (
    Event,
    Finished,
    Measured,
    Reported,
    Resizable,
    Saved,
    Started,
    Stopped,
)
from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.engines.local import LocalEngine
from weft.run_terms import Processes

EPOCHS = 8
SAMPLES = 1000
SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2] / "packages/weft-train/tests")!r})
from train_script import train
train(sys.argv[1], epochs={EPOCHS})
"""


class Trial:
    """One job, attempt after attempt."""

    def __init__(self, engine: LocalEngine, job: Job) -> None:
        self.engine, self.job = engine, job
        self.attempt = 0
        self.told: list[Event] = []
        self._news = engine.events()

    async def start(self, *slots: int) -> None:
        self.attempt += 1
        node = (await self.engine.nodes())[0]
        await self.engine.start(self.job, Allocation((Slice(node.id, slots),)), self.attempt)

    async def until(self, kind: type[Event]) -> Event:
        async with asyncio.timeout(LIMIT_S):
            async for event in self._news:
                self.told.append(event)
                if isinstance(event, kind) and event.attempt == self.attempt:  # type: ignore[union-attr]
                    return event
                assert isinstance(event, (Started, Reported, Saved, Measured, Resizable)), event
        raise AssertionError


def test_a_job_is_grown_shrunk_and_moved_and_sees_every_sample_once(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    command = (sys.executable, str(script), str(tmp_path / "seen"))
    launch = Launch(command, workdir=str(tmp_path), processes=Processes.PER_GPU)
    job = Job(JobId("elastic"), launch=launch)
    pauses: list[float] = []

    async def go() -> list[Event]:
        engine = LocalEngine(tmp_path / "state", slots=4, cpu=True)
        await engine.adopt(())
        async with asyncio.timeout(LIMIT_S):
            while not engine.is_warm:
                await asyncio.sleep(0.05)
        trial = Trial(engine, job)
        await trial.start(0)
        await trial.until(Reported)
        for slots in ((0, 1, 2, 3), (2, 3)):
            began = time.monotonic()
            await engine.stop(job.id, trial.attempt, 30.0)
            await trial.until(Stopped)
            await trial.start(*slots)
            await trial.until(Reported)
            pauses.append(time.monotonic() - began)
        await trial.until(Finished)
        await engine.close()
        return trial.told

    done = asyncio.run(go())

    notes = [note for path in tmp_path.glob("seen*") for note in lines(path)]
    for epoch in range(EPOCHS):
        ids = Counter(at for note in notes if note.get("epoch") == epoch for at in note["ids"])
        assert ids == Counter(range(SAMPLES)), f"epoch {epoch}"
    assert {note["size"] for note in notes if "size" in note} == {1, 2, 4}
    steps = [event.report.steps or 0.0 for event in done if isinstance(event, Reported)]
    assert steps == sorted(steps)
    assert max(pauses) < 20.0


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
