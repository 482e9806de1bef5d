"""Policies that share devices put real strangers together once their programs were watched."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import until
from weft.app.serve.live import Live, Settings
from weft.core.model.job import Job, JobId, Tier
from weft.core.model.launch import Launch

ENGINE = "local:cpu=true,slots=1,slot_gb=4,warm=false,pin=false"
POLICIES = (
    "muri:known=false",
    "iadeep",
    "antman",
    "gandiva:quantum=2",
    "lucid:packing=on,corner=0",
)
# Somebody's script: it waits for its data for most of each step.
SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return int(sys.argv[1])
    def __getitem__(self, at):
        time.sleep(0.04)
        return torch.ones(4)

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for batch in DataLoader(Slow()):
    optimizer.zero_grad()
    net(batch).sum().backward()
    optimizer.step()
"""


def stranger(folder: Path, name: str, steps: int, number: int) -> Job:
    (folder / f"{name}.py").write_text(SCRIPT)
    launch = Launch((sys.executable, f"{name}.py", str(steps)), str(folder), retries=0)
    return Job(JobId(f"{name}-{number}"), launch=launch)


@pytest.mark.slow
def test_strangers_share_under_every_policy_that_shares(tmp_path: Path) -> None:
    async def go() -> dict[str, bool]:
        settings = Settings(
            ENGINE, tmp_path / "state", policy="fifo", decide_in="service", start_ahead=False
        )
        live = Live(settings)
        await live.open()
        shared: dict[str, bool] = {}
        try:
            for name in ("first", "second"):
                await live.driver.submit(stranger(tmp_path, name, 100, 0))
                await live.driver.ended(JobId(f"{name}-0"))
            for number, policy in enumerate(POLICIES, start=1):
                await live.set_policy(policy)
                shared[policy] = await share(live, tmp_path, number)
        finally:
            await live.close()
        return shared

    assert asyncio.run(go()) == dict.fromkeys(POLICIES, True)


async def share(live: Live, folder: Path, number: int) -> bool:
    """Whether both come to have the one slot together."""
    jobs = [stranger(folder, name, 5000, number) for name in ("first", "second")]
    jobs[1] = replace(jobs[1], tier=Tier.OPPORTUNISTIC)
    for job in jobs:
        await live.driver.submit(job)
    table = live.driver.scheduler.state.table
    try:
        await until(lambda: sum(on is not None for on in table.allocations) == 2)
    except TimeoutError:
        return False
    finally:
        for job in jobs:
            await live.driver.cancel(job.id)
        await asyncio.gather(*(live.driver.ended(job.id) for job in jobs))
        state = live.driver.scheduler.state
        await until(lambda: not any(state.releasing.is_leaving(job.id) for job in jobs))
    return True
