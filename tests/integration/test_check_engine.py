"""The contract of engines, against one that declares what it does not do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from weft.core.events.event import Resized
from weft.core.model.job import Allocation, Job
from weft.engines.local import LocalEngine
from weft.testing.engine_resize import a_training_is_resized
from weft.testing.engine_subject import Subject, shell_job, shell_subject

# Says what a training says of itself, without one.
RANK = f"""exec {sys.executable} -c '
import os, time
from weft.base.client import AgentConnection
from weft.base.environment import Environment
from weft.base.messages import CanResize, Hello
me = Environment.read()
line = AgentConnection(me.agent, Hello(me.job, me.attempt, me.rank, os.getpid()))
line.send(CanResize(0.0))
for step in range(1, 1_000_000):
    print("step", step, "of", me.world_size, flush=True)
    time.sleep(0.02)
'"""


class Boaster(LocalEngine):
    """Says that it resized a job, and did nothing."""

    async def resize(self, job: Job, to: Allocation, attempt: int, epoch: int) -> None:
        self._queue.put_nowait(Resized(job.id, attempt, epoch))


def test_an_engine_that_declares_live_resize_and_does_not_do_it_fails(tmp_path: Path) -> None:
    def make() -> Boaster:
        return Boaster(tmp_path / "state", slots=2, warm=False, cpu=True)

    def run_rank(name: str, gpus: int, _: str) -> Job:
        return shell_job(name, gpus, RANK)

    plain = shell_subject(make, patience_s=180.0)
    subject = Subject(
        make, plain.job, plain.endless, plain.failing, script=run_rank, patience_s=180.0
    )

    with pytest.raises(AssertionError, match="Resized was reported, and there are 1 ranks on 2"):
        asyncio.run(a_training_is_resized(subject))
