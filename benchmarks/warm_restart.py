"""What a change of size costs a real PyTorch job on the warm local engine.

Run it as `python -m benchmarks.warm_restart`. A job trains on one slot, is stopped and started
again on two, then on four, then on one; reported are seconds from the request to stop until the
first report of the next attempt, and the CPU seconds that its processes had used by then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from weft.core.errors import EngineError
from weft.core.events.event import Event, Failed, Reported, Stopped
from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.engines.local import LocalEngine
from weft.wire.attempt import folder_of

SCRIPT = """
import torch
from torch import nn
import weft_train as wt

job = wt.init(report_every_s=0.02)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01))
x = torch.randn(4096, 64)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
loader = job.loader(data, batch_size=64)
for epoch in job.epochs(100_000):
    for a, b in loader:
        with job.step():
            job.backward(nn.functional.mse_loss(model(a), b))
"""
SIZES = (2, 4, 1)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    user, system = stat[stat.rindex(")") + 2 :].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds and CPU seconds of each change of size."""
    script = folder / "job.py"
    script.write_text(SCRIPT)
    engine = LocalEngine(folder / "state", slots=4, cpu=True, pin=False)
    await engine.adopt(())
    while not engine.is_warm:
        await asyncio.sleep(0.05)
    node = (await engine.nodes())[0]
    command = (sys.executable, str(script))
    job = Job(JobId("job"), launch=Launch(command, workdir="/", env={"OMP_NUM_THREADS": "1"}))
    news = engine.events()
    attempt = 1

    async def until(kind: type[Event]) -> None:
        async for event in news:
            if isinstance(event, Failed):
                raise EngineError(event.reason)
            if isinstance(event, kind) and getattr(event, "attempt", 0) == attempt:
                return

    async def start(size: int) -> None:
        await engine.start(job, Allocation((Slice(node.id, tuple(range(size))),)), attempt)
        await until(Reported)

    await start(1)
    seen: dict[str, list[float]] = {"wall_s": [], "cpu_s": []}
    for size in SIZES * rounds:
        began = time.monotonic()
        await engine.stop(job.id, attempt, 30.0)
        await until(Stopped)
        attempt += 1
        await start(size)
        seen["wall_s"].append(time.monotonic() - began)
        seen["cpu_s"].append(sum(map(cpu_s, _pids(folder_of(folder / "state", job.id, attempt)))))
    await engine.stop(job.id, attempt, 0.0)
    await until(Stopped)
    await engine.close()
    return seen


def _pids(folder: Path) -> list[int]:
    agent = json.loads((folder / "claim.json").read_text())["pid"]
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    started = next(line for line in lines if line["event"] == "started")
    return [agent, *(pid for pid, _ in started["ranks"].values())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-warm-") as folder:
        seen = asyncio.run(measure(Path(folder), asked.rounds))
    for name, values in seen.items():
        for i, size in enumerate(SIZES):
            part = values[i :: len(SIZES)]
            middle, most = statistics.median(part), max(part)
            print(f"to {size} slots: {name} median {middle:.2f}, most {most:.2f}")


if __name__ == "__main__":
    main()
