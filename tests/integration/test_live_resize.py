"""Real jobs on the local engine that change their ranks as they train, and what may go wrong."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.live_resize import LIMIT_S, Trial, open_engine
from benchmarks.live_resize_job import losses_of, read_rows

from tests.waiting import wait_until
from weft.core.events.event import Resized, ResizeFailed
from weft.engines.local import LocalEngine
from weft.wire.attempt import folder_of
from weft.wire.processes import descendants, find_holding

ROOT = Path(__file__).parents[2]
LAYERS_MB = 3.0


def ranks_of(engine: LocalEngine, trial: Trial) -> set[int]:
    """Every process of the attempt, new ranks too."""
    claim = folder_of(engine.state, trial.name, trial.attempt) / "claim.json"
    return {*descendants(json.loads(claim.read_text())["pid"])}


def test_ranks_come_go_and_move_and_the_training_is_as_if_nobody_had(tmp_path: Path) -> None:
    async def go() -> None:
        engine = await open_engine(tmp_path)
        trial = Trial(engine, tmp_path, "live", LAYERS_MB)
        await trial.start(0)
        for slots in ((0, 1), (2, 3), (3,), (0,)):
            await trial.steps(2)
            await trial.resize(*slots)
        await trial.steps(2)
        await trial.stop()
        calm = Trial(engine, tmp_path, "calm", LAYERS_MB)
        await calm.start(0)
        await calm.steps(trial.last_step())
        await calm.stop()
        await engine.close()

    asyncio.run(go())

    rows = read_rows(tmp_path / "live-steps")
    assert [*rows] == [*range(1, len(rows) + 1)]
    seen = [(row.epoch, id_) for parts in rows.values() for row in parts for id_ in row.ids]
    assert len(seen) == len({*seen})
    devices = {tuple(sorted(row.device for row in parts)) for parts in rows.values()}
    assert devices == {(0,), (0, 1), (2, 3), (3,)}
    ours, calm = losses_of(rows), losses_of(read_rows(tmp_path / "calm-steps"))
    assert ours == pytest.approx({step: calm[step] for step in ours}, rel=1e-5)


def test_a_new_rank_that_dies_is_given_up_and_a_newer_change_takes_its_place(
    tmp_path: Path,
) -> None:
    async def go() -> ResizeFailed:
        engine = await open_engine(tmp_path)
        trial = Trial(engine, tmp_path, "live", LAYERS_MB)
        await trial.start(0)
        before = ranks_of(engine, trial)
        await trial.ask(0, 1)
        async with asyncio.timeout(LIMIT_S):
            while not (new := ranks_of(engine, trial) - before):
                await asyncio.sleep(0.005)
        os.kill(new.pop(), signal.SIGKILL)
        failed = await trial.until(ResizeFailed)
        await trial.steps(2)
        assert ranks_of(engine, trial) == before
        await trial.ask(0, 1, 2)
        await trial.ask(0, 3)
        done = await trial.until(Resized)
        while isinstance(done, Resized) and done.epoch == 2:  # it was quicker than the third
            done = await trial.until(Resized)
        await trial.steps(2)
        await trial.stop()
        await engine.close()
        assert isinstance(failed, ResizeFailed)
        return failed

    failed = asyncio.run(go())

    assert failed.epoch == 1
    assert "exit code -9" in failed.reason
    last = [*read_rows(tmp_path / "live-steps").values()][-1]
    assert sorted(row.device for row in last) == [0, 3]


@pytest.mark.slow
def test_whoever_is_killed_in_a_change_nothing_hangs_and_nothing_is_lost(tmp_path: Path) -> None:
    from benchmarks.live_resize_faults import soak

    assert soak(tmp_path, 40, random.Random().randrange(1 << 30)) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_benchmark_that_is_ended_leaves_nothing_that_trains_on(
    tmp_path: Path, how: signal.Signals
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "benchmarks.live_resize_faults", "--keep", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as ours:
        wait_until(lambda: any((folder / "steps").glob("*.jsonl")))

        ours.send_signal(how)

    started = [int(path.stem) for path in (folder / "steps").glob("*.jsonl")]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    logs = (folder / "state" / "jobs" / "job").glob("*/agent.log")
    wait_until(lambda: not any(find_holding(log, writing=True) for log in logs))
