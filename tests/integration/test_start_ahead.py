"""A real job is started before its turn: the gap between two jobs is not its start-up."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from weft.app.serve.live import Live, Settings
from weft.core.events.event import Awoke, Slept, Started, StartedAhead
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch

START_UP_S = 4.0
ENGINE = "local:cpu=true,slots=1,slot_gb=4,warm=false,pin=false"
# A stranger's script: a start-up, then steps that a progress bar counts.
SCRIPT = f"""
import json, sys, time
time.sleep({START_UP_S})
from tqdm import tqdm
times = []
for _ in tqdm(range(int(sys.argv[1])), mininterval=0.05):
    time.sleep(0.02)
    times.append(time.time())
json.dump(times, open(sys.argv[2], "w"))
"""


async def run_two(folder: Path, *, ahead: bool) -> tuple[float, list[object], float]:
    """Seconds from the last step of one job to the next one's next step, and what happened."""
    (folder / "job.py").write_text(SCRIPT)
    settings = Settings(
        ENGINE, folder / "state", policy="fifo", decide_in="service", start_ahead=ahead
    )
    live = Live(settings)
    await live.open()
    try:
        names = ["first", "second"]
        for name, steps in zip(names, (500, 50), strict=True):
            await live.driver.submit(job(folder, name, steps))
        records = [(await live.driver.ended(JobId(name))).record for name in names]
        assert [record.outcome for record in records] == ["succeeded"] * 2
        events = [event for _, _, event in live.store.since(0)]
    finally:
        await live.close()
    first, second = (json.loads((folder / f"{name}.json").read_text()) for name in names)
    gap = next(at for at in second if at > first[-1]) - first[-1]
    charged = records[1].gpu_s.base
    return gap, [event for event in events if getattr(event, "job", "") == "second"], charged


def job(folder: Path, name: str, steps: int) -> Job:
    command = (sys.executable, "job.py", str(steps), f"{name}.json")
    return Job(JobId(name), launch=Launch(command, str(folder), retries=0), gpu_mem_gb=0.2)


@pytest.mark.slow
def test_the_gap_between_two_jobs_shrinks_when_the_next_is_started_ahead(tmp_path: Path) -> None:
    gaps: dict[bool, float] = {}
    for ahead in (False, True):
        folder = tmp_path / str(ahead)
        folder.mkdir()
        gaps[ahead], events, charged = asyncio.run(run_two(folder, ahead=ahead))
        kinds = [type(event) for event in events]
        assert (StartedAhead in kinds) == ahead
        if ahead:
            order = [kind for kind in kinds if kind in (StartedAhead, Slept, Awoke, Started)]
            assert order == [StartedAhead, Slept, Awoke]
            assert charged < START_UP_S  # of GPU time: its start-up is not in it

    assert gaps[True] < 0.5 * gaps[False]


def test_one_that_was_started_ahead_is_found_again_by_the_next_service(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    settings = Settings(ENGINE, tmp_path / "state", policy="fifo", decide_in="service")

    async def first() -> None:
        live = Live(settings)
        await live.open()
        for name, steps in (("first", 1000), ("second", 20)):
            await live.driver.submit(job(tmp_path, name, steps))
        async with asyncio.timeout(LIMIT_S):
            while not live.driver.scheduler.state.asleep.is_asleep(JobId("second")):
                await asyncio.sleep(0.05)
        assert live.driver.job(JobId("second")).state == "pending"
        await live.close()

    async def second() -> list[str]:
        live = Live(settings)
        await live.open()
        try:
            ended = [await live.driver.ended(JobId(name)) for name in ("first", "second")]
            assert ended[1].record.attempt == 1
            return [status.state for status in ended]
        finally:
            await live.close()

    asyncio.run(first())

    assert asyncio.run(second()) == ["succeeded", "succeeded"]
    assert len(json.loads((tmp_path / "second.json").read_text())) == 20
