"""Sixty seconds on a machine with a GPU: whether freezing and suspending work there.

    python -m benchmarks.asleep.gpu_probe [--gb 4]

Trains a small model in a process of its own, undisturbed and then frozen, suspended and resumed
through the local engine; prints one JSON object: seconds and GPU memory at each point, and whether
the losses are bit-equal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weft.core.events.event import Failed, Finished, Started
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.stops import PLAN
from weft.engines.local import LocalEngine

TRAINING = """
import json, pathlib, sys, torch
steps, gb, out = int(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)
ballast = torch.zeros(int(gb * 2**28), device="cuda")
model = torch.nn.Sequential(
    torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for step in range(steps):
    x = torch.randn(64, 512, device="cuda")
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        pathlib.Path(f"{out}.step").write_text(str(step))
out.write_text(json.dumps(losses))
"""
JOB = JobId("probe")
STEPS = 12_000


def used_gb() -> float:
    """Memory in use on the first GPU."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0]) / 1024.0


def steps_done(out: Path) -> int:
    """How far a training is."""
    file = Path(f"{out}.step")
    return int(file.read_text() or 0) if file.exists() else 0


async def disturbed(room: Path, gb: float) -> dict[str, object]:
    """The training under the engine, put to sleep twice."""
    engine = LocalEngine(room / "state", warm=False, pin=False)
    await engine.adopt(())
    node, out = (await engine.nodes())[0], room / "disturbed.json"
    command = (sys.executable, "-c", TRAINING, str(STEPS), str(gb), str(out))
    job = Job(JOB, demand=Demand(1), launch=Launch(command, workdir="/"))
    await engine.start(job, Allocation((Slice(node.id, (0,)),)), 1)
    measured: dict[str, object] = {"stops": sorted(engine.stops), "kind": node.kind}
    events = engine.events()
    while not isinstance(await anext(events), Started):
        pass
    while steps_done(out) < 1_000:
        await asyncio.sleep(0.05)
    for what, ask in (("freeze", engine.freeze), ("suspend", engine.suspend)):
        if what not in engine.stops:
            continue
        began = time.monotonic()
        await ask(JOB, 1, by=PLAN)
        measured[f"{what}_s"] = round(time.monotonic() - began, 4)
        measured[f"{what}_gpu_gb"] = round(used_gb(), 2)
        before = steps_done(out)
        await asyncio.sleep(1.5)
        measured[f"{what}_stood_still"] = steps_done(out) == before
        began = time.monotonic()
        await engine.thaw(JOB, 1, by=PLAN)
        measured[f"{what}_back_s"] = round(time.monotonic() - began, 4)
        await asyncio.sleep(1.0)
        measured[f"{what}_goes_on"] = steps_done(out) > before
    while not isinstance(event := await anext(events), (Finished, Failed)):
        pass
    measured["ended"] = type(event).__name__
    await engine.close()
    return measured


def main() -> int:
    """Print what was found; 1 if the losses differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=4.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-probe-") as folder:
        room = Path(folder)
        alone = room / "alone.json"
        command = [sys.executable, "-c", TRAINING, str(STEPS), str(asked.gb), str(alone)]
        subprocess.run(command, check=True)
        done = asyncio.run(disturbed(room, asked.gb))
        other = room / "disturbed.json"
        done["bit_equal"] = other.exists() and other.read_text() == alone.read_text()
    sys.stdout.write(json.dumps(done, indent=1) + "\n")
    return 0 if done["bit_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
