"""The child of `benchmarks.live_resize_faults`: a service whose one job has what a file says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.core.plan.plan import Plan
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.engines.local import LocalEngine
from weft.run_terms import Processes
from weft.runtime.deciding.decider import InProcess
from weft.runtime.loop.driver import Driver
from weft.store.sqlite import SqliteStore

NODE = NodeId("faults")
SLOTS = 4
WISH = "wish.json"
LIMIT_S = 30.0  # for new ranks to be ready: they may have to import torch
LOOK_S = 0.02
FOREVER = 100_000
ANY_END = tuple(range(-64, 126))  # exit codes, and signals below 0


class Follow(InProcess):
    """Decides what the file says: the slots of the job, as a list."""

    def __init__(self, wish: Path) -> None:
        super().__init__()
        self._wish = wish

    async def plan(self, scheduler: Scheduler, policy: PartSpec, now: float) -> Plan:  # noqa: ARG002
        """The wished slots, if the job does not have them."""
        table = scheduler.state.table
        to = Allocation((Slice(NODE, tuple(json.loads(self._wish.read_text()))),))
        changes = {
            job.id: to
            for job, on in zip(table.jobs, table.allocations, strict=True)
            if on is None or on.devices != to.devices
        }
        return Plan(changes, wake_at=now + 1.0)


def job_of(folder: Path, layers: int, save_s: float, device: str) -> Job:
    """One job that trains for ever."""
    script = str(Path(__file__).with_name("live_resize_job.py"))
    steps = folder / "steps"
    launch = Launch(
        (sys.executable, script, str(steps), str(layers), str(FOREVER), str(save_s), device),
        workdir=str(folder),
        env={"OMP_NUM_THREADS": "1"},
        processes=Processes.PER_GPU,
        retries=FOREVER,
        retry_on=ANY_END,  # named, or three kills before a checkpoint would be its last
        grace_s=20.0,
    )
    return Job(JobId("job"), demand=Demand(1, min=1, max=SLOTS), launch=launch)


async def serve(folder: Path, layers: int, save_s: float, device: str) -> None:
    """Until it is asked to end, or whoever started it is gone: then the job is ended first."""
    parent, state, wish = os.getppid(), folder / "state", folder / WISH
    state.mkdir(exist_ok=True)
    engine = LocalEngine(
        state, slots=SLOTS, cpu=True, pin=False, groups=False, name=NODE, resize_limit_s=LIMIT_S
    )
    store = SqliteStore(state / "events.db")
    driver = Driver(engine, store, policy="fifo", decider=Follow(wish), end_unknown=True)
    await driver.open()
    if JobId("job") not in driver.ledger.jobs:
        while not engine.is_warm:
            await asyncio.sleep(0.05)
        await driver.submit(job_of(folder, layers, save_s, device))
    seen, asked = wish.read_text(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    while os.getppid() == parent and not asked.is_set():
        await asyncio.sleep(LOOK_S)
        if (now := wish.read_text()) != seen:
            seen = now
            await driver.restate_policy()  # so that it is decided about
    if not asked.is_set():
        await driver.cancel(JobId("job"))
        await driver.ended(JobId("job"))
    await driver.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
