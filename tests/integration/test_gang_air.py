"""Ranks that wait for each other in collectives, frozen for longer than these wait."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from weft.core.events.event import Event, Failed, Finished, Started
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.stops import PLAN
from weft.engines.attempts import asleep
from weft.engines.local import LocalEngine
from weft.run_terms import Processes

JOB = JobId("talking")
TIMEOUT_S = 10.0  # of a collective, and of the ranks' patience
FROZEN_S = 24.0
# Each rank adds up what all ranks say, as a training sums its gradients, without a pause.
SUMS = f"""
import datetime, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds={TIMEOUT_S}))
x = torch.full((1000,), 0.1 + dist.get_rank())
until = time.monotonic() + {FROZEN_S} + 6.0
step, done = 0, torch.zeros(1)
while not done.item():
    dist.all_reduce(x)
    x /= dist.get_world_size()
    done[0] = float(dist.get_rank() == 0 and time.monotonic() > until)
    dist.all_reduce(done)
    step += 1
    if step == 100 or step % 1000 == 0:
        print("step", step, flush=True)
print("mean", x.mean().item(), flush=True)
"""


async def freeze_for_long(state: Path) -> tuple[Event, list[str]]:
    """How a gang ends that is frozen in the middle of its collectives, and what its ranks print."""
    engine = LocalEngine(state, slots=2, warm=False, cpu=True, groups=False, pin=False)
    await engine.adopt(())
    env = {asleep.OWN_TIMEOUT: str(TIMEOUT_S), "OMP_NUM_THREADS": "1"}
    launch = Launch((sys.executable, "-c", SUMS), workdir="/", processes=Processes.PER_GPU, env=env)
    (node,) = await engine.nodes()
    await engine.start(Job(JOB, demand=Demand(2), launch=launch), on(node.id), 1)
    try:
        async with asyncio.timeout(LIMIT_S):
            events = engine.events()
            while not isinstance(await anext(events), Started):
                pass
            while not all("step 100\n" in text for text in printed(engine)):
                await asyncio.sleep(0.05)
            await engine.freeze(JOB, 1, by=PLAN)
            await asyncio.sleep(FROZEN_S)
            await engine.thaw(JOB, 1, by=PLAN)
            while not isinstance(event := await anext(events), (Finished, Failed)):
                pass
            return event, printed(engine)
    finally:
        await engine.stop(JOB, 1, 0.0)
        await engine.close()


def on(node: str) -> Allocation:
    return Allocation((Slice(node, (0, 1)),))  # type: ignore[arg-type]


def printed(engine: LocalEngine) -> list[str]:
    return [path.read_text() for path in engine.logs(JOB, 1).values()] or [""]


@pytest.mark.slow
def test_a_gang_comes_up_for_air_before_its_collectives_give_up(tmp_path: Path) -> None:
    event, texts = asyncio.run(freeze_for_long(tmp_path))

    assert event == Finished(JOB, 1), texts
    assert len({text.rpartition("mean ")[2] for text in texts}) == 1


@pytest.mark.slow
def test_without_air_its_collectives_give_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asleep, "find_longest_stall_s", lambda _: 0.0)

    event, _ = asyncio.run(freeze_for_long(tmp_path))

    assert isinstance(event, Failed)
