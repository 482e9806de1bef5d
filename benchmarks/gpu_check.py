"""The local engine on a real GPU: found, used, shared under MPS, and freed after a kill.

python -m benchmarks.gpu_check
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.engines.local import LocalEngine
from weft.engines.machine.devices import find_gpus
from weft.runtime.loop.driver import Driver
from weft.store.memory import MemoryStore
from weft.wire.attempt import folder_of
from weft.wire.processes import alive

# Kernels too small to fill a large GPU: what several jobs can run side by side.
SCRIPT = """
import json, os, sys, time, torch
x = torch.randn(512, 512, device="cuda")
torch.cuda.synchronize()
print(json.dumps({"device": torch.cuda.get_device_name(0), "count": torch.cuda.device_count(),
                  "mps": os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")}), flush=True)
began, steps = time.time(), 0
while time.time() - began < float(sys.argv[1]):
    for _ in range(200):
        x = torch.tanh(x @ x)
    torch.cuda.synchronize()
    steps += 200
print(json.dumps({"steps_per_s": steps / (time.time() - began)}), flush=True)
"""


async def check(folder: Path) -> dict[str, Any]:
    """Run all of it; what was seen."""
    script = folder / "job.py"
    script.write_text(SCRIPT)
    seen: dict[str, Any] = {"gpus": [gpu.name for gpu in find_gpus()]}
    for mps in (False, True):
        engine = LocalEngine(folder / f"state-{mps}", mps=mps, warm=not mps)
        driver = Driver(engine, MemoryStore(), policy="fifo")
        await driver.open()
        while engine.warm and not engine.is_warm:
            await asyncio.sleep(0.05)
        word = "mps" if mps else "driver"
        seen[f"{word}_alone"] = await _together(driver, script, f"{word}-alone", 1)
        seen[f"{word}_four"] = await _together(driver, script, f"{word}-four", 4)
        if not mps:
            seen["killed"] = await _killed(driver, script, folder / f"state-{mps}")
        await driver.close()
    return seen


async def _together(driver: Driver, script: Path, name: str, count: int) -> dict[str, Any]:
    jobs = [_job(script, f"{name}-{i}", 1.0 / count, 3.0) for i in range(count)]
    began = time.monotonic()
    for job in jobs:
        await driver.submit(job)
    states = [(await driver.ended(job.id)) for job in jobs]
    took = time.monotonic() - began
    printed = [driver.engine.logs(job.id, 1)[0].read_text() for job in jobs]
    lines = [json.loads(line) for text in printed for line in text.splitlines() if line[:1] == "{"]
    return {
        "states": [state.state + state.record.reason for state in states],
        "said": lines[0] if lines else printed[0][-500:],
        "steps_per_s": round(sum(line.get("steps_per_s", 0.0) for line in lines)),
        "seconds": round(took, 2),
    }


async def _killed(driver: Driver, script: Path, state: Path) -> dict[str, Any]:
    job = _job(script, "victim", 1.0, 1000.0)
    await driver.submit(job)
    folder = folder_of(state, job.id, 1)
    while not (folder / "rank-0.log").exists() or not (folder / "rank-0.log").read_text():
        await asyncio.sleep(0.05)
    claim = json.loads((folder / "claim.json").read_text())
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    pid, began = next(e["ranks"]["0"] for e in events if e["event"] == "started")
    os.kill(claim["pid"], signal.SIGKILL)
    at = time.monotonic()
    while driver.job(job.id).record.attempt < 2:
        await asyncio.sleep(0.02)
    gone = not alive(pid, began)
    await driver.cancel(job.id)
    return {"rank_gone": gone, "noticed_after_s": round(time.monotonic() - at, 2)}


def _job(script: Path, name: str, share: float, seconds: float) -> Job:
    launch = Launch((sys.executable, str(script), str(seconds)), workdir="/", backoff_s=0.1)
    return Job(JobId(name), demand=Demand(1, share=share), launch=launch)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="weft-gpu-") as scratch:
        print(json.dumps(asyncio.run(check(Path(scratch))), indent=1))
