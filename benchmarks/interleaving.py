"""Two jobs on one device: an io-heavy and a compute-heavy one, by discipline, on the CPU.

Both are real PyTorch trainings through `weft_train`, each in its own process. The first waits for
a slow store (80 ms a batch) and computes 20 ms, the second the other way round. Work is counted in
seconds of a job alone: 1.0 a second is what time slicing gives. Losses must be those of the job
alone, bit by bit. `python -m benchmarks.interleaving [--seconds S]`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

DISCIPLINES = ("timeslice:quantum_s=0.5", "lockstep", "work-conserving")
SECONDS = 8.0


class Nature(NamedTuple):
    """Seconds of a batch that the store takes, and that computing takes."""

    io_s: float
    gpu_s: float


JOBS = {"io-heavy": Nature(0.080, 0.020), "compute-heavy": Nature(0.005, 0.095)}


class Ran(NamedTuple):
    """Steps in the measured time, and all losses."""

    steps: int
    losses: list[float]


def run(seconds: float = SECONDS) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/tmp") as scratch:
        folder = Path(scratch)
        alone = {name: together(folder, [name], "", seconds)[name] for name in JOBS}
        ratios: dict[str, float] = {}
        for discipline in DISCIPLINES:
            pair = together(folder, list(JOBS), discipline, seconds)
            short = discipline.partition(":")[0]
            for name, ran in pair.items():
                common = min(len(ran.losses), len(alone[name].losses))
                if ran.losses[:common] != alone[name].losses[:common]:
                    sys.exit(f"{discipline}: the losses of {name} are not those of it alone")
                ratios[f"{short}, {name} against alone"] = ran.steps / alone[name].steps
            ratios[f"{short}, work of both"] = sum(
                ran.steps / alone[name].steps for name, ran in pair.items()
            )
    slices = ratios["timeslice, work of both"]
    for short in ("lockstep", "work-conserving"):
        ratios[f"{short} against timeslice"] = ratios[f"{short}, work of both"] / slices
    return ratios


def together(folder: Path, names: list[str], discipline: str, seconds: float) -> dict[str, Ran]:
    """Run the named jobs at once for some time."""
    path = folder / "tokens"
    coordinator = None
    if discipline:
        command = [sys.executable, "-m", "weft.node.tokens", str(path)]
        coordinator = subprocess.Popen(
            [*command, "--discipline", discipline], stderr=subprocess.DEVNULL
        )
        while not path.exists():
            time.sleep(0.01)
    warm = mp.get_context("forkserver")
    warm.set_forkserver_preload(["weft_train", "torch._dynamo"])
    ready = warm.Barrier(len(names) + 1)
    env = {"WEFT_COORDINATOR": str(path) if discipline else "", "OMP_NUM_THREADS": "1"}
    processes = [
        warm.Process(target=job, args=(name, {**env, "WEFT_JOB": name}, ready, str(folder)))
        for name in names
    ]
    for process in processes:
        process.start()
    ready.wait()
    time.sleep(seconds)
    for process in processes:
        if process.pid is not None:
            os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join()
    if coordinator is not None:
        coordinator.terminate()
        coordinator.wait()
    return {name: read_ran(folder / name, seconds) for name in names}


def read_ran(path: Path, seconds: float) -> Ran:
    """Steps that ended within the measured time, and every loss."""
    notes = [json.loads(line) for line in path.read_text().splitlines()]
    began = notes[0]
    steps = [at for at, _ in notes[1:] if at - began <= seconds]
    return Ran(len(steps), [loss for _, loss in notes[1:]])


def job(name: str, env: dict[str, str], ready: Any, folder: str) -> None:
    """A training script; it stops by itself at SIGTERM."""
    os.environ.update(env)
    import torch
    from torch import nn

    import weft_train as wt

    torch.set_num_threads(1)
    nature = JOBS[name]
    trained = wt.init()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    model, _ = trained.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01), scaling="none")
    loader = trained.loader(Store(nature.io_s), batch_size=64)
    with (Path(folder) / name).open("w", buffering=1) as out:
        for epoch in trained.epochs(1_000_000):
            for at, (x, y) in enumerate(loader):
                if epoch == at == 0:
                    ready.wait()
                    out.write(json.dumps(time.monotonic()) + "\n")
                with trained.step():
                    loss = nn.functional.mse_loss(model(x), y)
                    trained.backward(loss)
                    compute(torch, nature.gpu_s)
                out.write(json.dumps([time.monotonic(), loss.item()]) + "\n")


def compute(torch: Any, seconds: float) -> None:
    """Keep a core busy with matrices for so long: a device whose speed is known."""
    matrix = torch.full((128, 128), 0.01)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        matrix @ matrix


class Store:
    """A data set behind a slow store: a batch takes `io_s` seconds and no CPU."""

    def __init__(self, io_s: float) -> None:
        import torch

        chance = torch.Generator().manual_seed(3)
        self.io_s = io_s
        self.x = torch.randn(6400, 256, generator=chance)
        self.y = self.x.sum(dim=1, keepdim=True) / 16.0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        return self.x[at], self.y[at]

    def __getitems__(self, ids: list[int]) -> list[tuple[Any, Any]]:
        time.sleep(self.io_s)
        return [self[at] for at in ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    done = run(parser.parse_args().seconds)
    for metric, value in done.items():
        print(f"{metric:<44} {value:>8.3f}")
    if done["work-conserving against timeslice"] < 1.5:
        sys.exit("expected at least 1.5 times the work of time slicing")


if __name__ == "__main__":
    main()
