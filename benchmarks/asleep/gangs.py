"""A gang that sleeps longer than its collectives wait, loses its service, and a rank asleep.

    python -m benchmarks.asleep.gangs [--device cuda] [--seconds 90] [--timeout 20] [--ranks 4]

Ranks of one DDP training run under the local engine; on a GPU they are NCCL ranks that share it,
each with a host id of its own. Their collectives, and NCCL's heartbeat, wait for `--timeout`
seconds. The gang is frozen for `--seconds` and resumed; frozen again by a service that is then
killed, until it wakes by itself and another service takes it up; suspended, where the driver can;
and frozen once more while one of its ranks is killed. Prints a JSON object for each part: steps
while frozen, how long each way took, what the service heard of the lost rank and how soon all
others were gone, and whether losses are bit-equal to those of a gang that nobody disturbed. 1 if
they are not, or if the second service did not know the gang.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing as mp
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.live_resize_job import last_words
from weft.core.errors import EngineError
from weft.core.events.event import Failed, Started
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.stops import PLAN
from weft.engines.local import LocalEngine
from weft.run_terms import Processes

TRAINING = """
import datetime, json, os, pathlib, sys, time
out, device, timeout_s = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if device == "cuda":
    os.environ |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket"}
import torch, torch.distributed as dist
limit = datetime.timedelta(seconds=timeout_s)
dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=limit)
torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
model = torch.nn.parallel.DistributedDataParallel(net.to(device))
optimizer = torch.optim.AdamW(model.parameters())
(out / f"{rank}.pid").write_text(str(os.getpid()))
with (out / f"{rank}.jsonl").open("a", buffering=1) as file:
    for step in range(1_000_000):
        x = torch.randn(16, 256, generator=torch.Generator().manual_seed(step * size + rank))
        x = x.to(device)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        file.write(json.dumps([step, loss.item()]) + "\\n")
        time.sleep(0.02)
"""
KEY = JOB, ATTEMPT = JobId("gang"), 1
WAKE_ALONE_S = 10.0
LIMIT_S = 240.0
SOME = 10  # steps


def make_engine(room: Path, ranks: int) -> LocalEngine:
    """One of slots: what computes on a GPU does so by its own choice."""
    state = room / "state"
    return LocalEngine(
        state, slots=ranks, cpu=True, pin=False, groups=False, warm=False, wake_alone_s=WAKE_ALONE_S
    )


def steps_done(out: Path) -> int:
    """The steps that rank 0 has made."""
    file = out / "0.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


async def until(out: Path, steps: int) -> float:
    """Seconds until so many steps are done."""
    began = time.monotonic()
    while steps_done(out) < steps:
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit(f"no {steps} steps in {LIMIT_S:g} s\n{last_words(out.parent)}")
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def begin(engine: LocalEngine, out: Path, asked: argparse.Namespace) -> None:
    """The gang, until it trains."""
    out.mkdir()
    await engine.adopt(())
    node = (await engine.nodes())[0]
    waits = {
        "WEFT_COLLECTIVE_TIMEOUT_S": f"{asked.timeout:g}",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": f"{asked.timeout:g}",
        "OMP_NUM_THREADS": "1",
    }
    command = (sys.executable, "-c", TRAINING, str(out), asked.device, f"{asked.timeout:g}")
    launch = Launch(command, workdir="/", env=waits, processes=Processes.PER_GPU)
    job = Job(JOB, demand=Demand(asked.ranks), launch=launch)
    await engine.start(job, Allocation((Slice(node.id, tuple(range(asked.ranks))),)), ATTEMPT)
    await until(out, SOME)


async def freeze(engine: LocalEngine) -> None:
    """Freeze the gang; not while it is let run for a moment, which is over soon."""
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            return await engine.freeze(*KEY, by=PLAN)
        except EngineError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.5)


def show(part: str, **measured: object) -> None:
    """Print a part as soon as it is known."""
    sys.stdout.write(json.dumps({part: measured}) + "\n")
    sys.stdout.flush()


async def frozen(engine: LocalEngine, out: Path, seconds: float) -> dict[str, object]:
    """Frozen for a while and resumed, with the service there."""
    began = time.monotonic()
    await freeze(engine)
    freeze_s, before = time.monotonic() - began, steps_done(out)
    await asyncio.sleep(seconds)
    during = steps_done(out) - before
    began = time.monotonic()
    await engine.thaw(*KEY, by=PLAN)
    await until(out, before + during + SOME)
    back_s = time.monotonic() - began
    return {"freeze_s": freeze_s, "slept_s": seconds, "steps_meanwhile": during, "back_s": back_s}


async def suspended(engine: LocalEngine, out: Path) -> dict[str, object]:
    """Its memory moved to the host and back, where the driver can; why not elsewhere."""
    if "suspend" not in engine.stops:
        return {"not": "this engine cannot suspend here"}
    began = time.monotonic()
    try:
        host_gb = await engine.suspend(*KEY, by=PLAN)
    except EngineError as error:  # what the driver says is what this is for
        return {"not": str(error)[:300]}
    took_s, before = time.monotonic() - began, steps_done(out)
    began = time.monotonic()
    await engine.thaw(*KEY, by=PLAN)
    await until(out, before + SOME)
    return {"suspend_s": took_s, "host_gb": host_gb, "back_s": time.monotonic() - began}


async def lose_one(engine: LocalEngine, out: Path, ranks: int) -> dict[str, object]:
    """One rank is killed while all are frozen."""
    pids = [int((out / f"{rank}.pid").read_text()) for rank in range(ranks)]
    events = engine.events()
    await freeze(engine)
    began = time.monotonic()
    os.kill(pids[-1], signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        while not isinstance(event := await anext(events), Failed):
            pass
        heard_s = time.monotonic() - began
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            await asyncio.sleep(0.05)
    return {"heard_s": heard_s, "reason": event.reason, "all_gone_s": time.monotonic() - began}


def first_service(room: Path, out: Path, asked: argparse.Namespace, line: mp.Queue[object]) -> None:
    """Start the gang, freeze it for a while, freeze it again, and be killed."""

    async def serve() -> None:
        engine = make_engine(room, asked.ranks)
        await begin(engine, out, asked)
        line.put(await frozen(engine, out, asked.seconds))
        await freeze(engine)
        line.put(steps_done(out))
        line.close()
        line.join_thread()
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(serve())


async def after_it(room: Path, out: Path, before: int, ranks: int) -> bool:
    """Without a service until it trains again, and then with another one; whether that knew it."""
    woke_s = await until(out, before + 1)
    engine = make_engine(room, ranks)
    known = KEY in await engine.adopt([KEY])
    show("service_gone", woke_alone_s=woke_s, adopted=known)
    events = engine.events()
    while not isinstance(await anext(events), Started):
        pass
    await until(out, steps_done(out) + SOME)
    show("suspended", **await suspended(engine, out))
    show("lost", **await lose_one(engine, out, ranks))
    await engine.close()
    return known


async def undisturbed(room: Path, out: Path, steps: int, asked: argparse.Namespace) -> None:
    """As many steps of a gang that is left alone."""
    engine = make_engine(room, asked.ranks)
    await begin(engine, out, asked)
    await until(out, steps)
    await engine.stop(*KEY, 0.0)
    await engine.close()


def main() -> int:
    """Print what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long it sleeps")
    parser.add_argument("--timeout", type=float, default=20.0, help="what collectives wait, in s")
    parser.add_argument("--ranks", type=int, default=4)
    asked = parser.parse_args()
    spawn = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="weft-gangs-", ignore_cleanup_errors=True) as folder:
        room, out, calm = (Path(folder) / name for name in ("one", "steps", "calm"))
        line = spawn.Queue()
        service = spawn.Process(target=first_service, args=(room, out, asked, line))
        service.start()
        slept = line.get(timeout=LIMIT_S + asked.seconds)
        show("frozen", **slept)
        before = line.get(timeout=LIMIT_S)
        service.join()
        known = asyncio.run(after_it(room, out, before, asked.ranks))
        asyncio.run(undisturbed(Path(folder) / "two", calm, steps_done(out), asked))
        equal = True
        for rank in range(asked.ranks):
            ours, theirs = ((place / f"{rank}.jsonl").read_text() for place in (out, calm))
            whole = ours[: ours.rfind("\n") + 1]
            equal &= bool(whole) and theirs.startswith(whole)
    show("losses", steps=len(ours.splitlines()), bit_equal=equal, **vars(asked))
    return 0 if equal and known else 1


if __name__ == "__main__":
    sys.exit(main())
