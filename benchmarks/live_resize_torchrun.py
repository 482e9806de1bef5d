"""The job of the live-resize benchmarks under torchrun's elastic agent: how long a change takes.

    python live_resize_torchrun.py FOLDER LAYERS DEVICE        (a rank, which torchrun starts)

A plain DDP script that saves every `SAVE_S` seconds and goes on from what it saved, as the manual
of torchrun has it. Each rank has an agent of its own, as on a machine of its own; to grow, more
agents are started, to shrink, some are asked to end. The agents' times are set as low as they go.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.live_resize_frameworks import BATCH, SAMPLES, Notes, build
from benchmarks.live_resize_job import Row, read_rows

SAVE_S = 2.0
LIMIT_S = 120.0
SETTLE_STEPS = 3
TIMES = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=2"


def measure_torchrun(
    folder: Path, layers: int, device: str, sizes: Sequence[int]
) -> list[tuple[float, int]]:
    """Seconds without a step of each change in turn, and how many steps were done again."""
    (folder / "steps").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agents: list[subprocess.Popen[bytes]] = []

    def resize(size: int) -> None:
        while len(agents) < size:
            agents.append(start_agent(folder, layers, device, port, max(sizes)))
        for agent in agents[size:]:  # the first one has the store
            agent.terminate()
        del agents[size:]

    changes = []
    try:
        resize(sizes[0])
        wait_for(folder, sizes[0], 0.0)
        for _, size in pairwise(sizes):
            asked = time.monotonic()
            resize(size)
            changes.append(wait_for(folder, size, asked))
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(LIMIT_S)
    return changes


def start_agent(
    folder: Path, layers: int, device: str, port: int, most: int
) -> subprocess.Popen[bytes]:
    """One more machine with one rank."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", f"1:{most}"),
        *("--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "live-resize"),
        *("--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", TIMES, "--local-addr"),
        *("127.0.0.1", "--max-restarts", "100", "--monitor-interval", "0.1"),
        *("-m", "benchmarks.live_resize_torchrun", str(folder), str(layers), device),
    ]
    log = (folder / f"agent-{time.monotonic_ns()}.log").open("wb")
    with log:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)


def wait_for(folder: Path, size: int, asked: float) -> tuple[float, int]:
    """Until some steps of so many ranks were done after a time: their pause, and steps redone."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        rows = [row for parts in read_rows(folder / "steps").values() for row in parts]
        new = [row for row in rows if row.size == size and row.began > asked]
        steps = {row.step for row in new}
        if len(steps) > SETTLE_STEPS and len(new) >= size * SETTLE_STEPS:
            return find_gap(rows, new, asked)
        time.sleep(0.1)
    raise SystemExit(f"no steps of {size} ranks in {LIMIT_S:g} s")


def find_gap(rows: list[Row], new: list[Row], asked: float) -> tuple[float, int]:
    """From the last step before to the first one after, on the last rank to begin."""
    first = min(new, key=lambda row: row.began).step
    began = max(row.began for row in new if row.step == first)
    size = new[0].size
    before = [row for row in rows if row.ended < began and (row.size != size or row.began <= asked)]
    if not before or not asked:
        return 0.0, 0
    last = max(before, key=lambda row: row.ended)
    return began - last.ended, max(last.step - first + 1, 0)


def train(folder: Path, layers: int, device: str) -> None:
    """One rank, from the last checkpoint on."""
    if device == "cuda":  # ranks of one GPU meet only if NCCL takes them for as many machines
        os.environ |= {"NCCL_HOSTID": f"rank-{os.getpid()}", "NCCL_SOCKET_IFNAME": "lo"}
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net, data = build(layers)
    model = torch.nn.parallel.DistributedDataParallel(net.to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    kept, step = folder / "checkpoint.pt", 0
    if kept.exists():
        saved = torch.load(kept, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    notes, saved_at = Notes(folder / "steps"), time.monotonic()
    while True:
        rows = torch.arange(SAMPLES)[step % (SAMPLES // BATCH) * BATCH :][:BATCH][rank::size]
        x, y, ids = data[rows]
        notes.begin(ids)
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        optimizer.step()
        notes.loss, step = loss.item(), step + 1
        notes.end(step, 0, rank, size)
        if rank == 0 and time.monotonic() > saved_at + SAVE_S:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step}, folder / "partial.pt")
            (folder / "partial.pt").replace(kept)
            saved_at = time.monotonic()


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
