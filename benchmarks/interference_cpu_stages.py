"""Measure pairs of jobs with a CPU stage, on a machine with one NVIDIA GPU and PyTorch.

    python benchmarks/interference_cpu_stages.py OUT_FOLDER [timeslicing] [mps]

A workload `MODEL:BATCH+MS` works on one core of the host for MS milliseconds before every step, as
a loader without workers does; then it trains as in `interference_measure.py`, which lies beside
this file. `cpu` is the part of its step alone in which it did so, `norm` its rate together over
alone. Nothing of Weft is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import interference_measure as zoo

NAMES = {
    "r2k": "resnet18-cifar:2048+13",
    "r50": "resnet50:128+0",
    "r50c": "resnet50:128+60",
    "r64c": "resnet50:64+90",
    "b": "bert-base:32+0",
    "bc": "bert-base:32+35",
    "g": "gpt2:16+0",
    "gc": "gpt2:16+65",
    "vc": "vit_b_16:64+20",
    "vggc": "vgg19:128+120",
    "lc": "lstm:64+150",
    "mc": "mobilenet_v3:256+50",
}
PAIRS = """r2k r50|r2k bc|r2k gc|r2k lc|r50 r50c|r50 r64c|r50 bc|r50 vggc|r50c bc|r50c gc|r50c mc
r64c b|r64c g|r64c vggc|b bc|b gc|b vc|bc gc|bc vc|bc mc|g gc|g vggc|g mc|gc vc|gc lc|vc vggc|vc mc
vggc lc|vggc mc|lc mc|lc b|mc r50"""


def main() -> None:
    """Serve one workload, or measure all pairs under the disciplines that were named."""
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
        return
    out, parts = Path(sys.argv[1]), sys.argv[2:] or ["timeslicing", "mps"]
    out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        zoo.write(out / f"cpu-{part}.csv", pairs(part))


class Worker(zoo.Worker):
    """A process that trains one workload of this file when told to."""

    script = __file__


def pairs(discipline: str) -> Iterator[dict[str, object]]:
    """Rates of both members of every pair."""
    env = dict(os.environ)
    if discipline == "mps":
        folder = tempfile.mkdtemp()
        env |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
    workers = {key: Worker(name, env) for key, name in NAMES.items()}
    try:
        for worker in workers.values():
            worker.hear()
        base = {key: worker.ask(f"run {zoo.ALONE_S}") for key, worker in workers.items()}
        for members in (pair.split() for row in PAIRS.splitlines() for pair in row.split("|")):
            for key in members:
                workers[key].tell(f"run {zoo.TOGETHER_S}")
            for key, answer in [(key, workers[key].hear()) for key in members]:
                yield {
                    "discipline": discipline,
                    "pair": " ".join(members),
                    "workload": workers[key].name,
                    "cpu": base[key]["cpu"],
                    "norm": round(answer["rate"] / base[key]["rate"], 4),
                }
    finally:
        for worker in workers.values():
            worker.close()
        if discipline == "mps":
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=env)


def serve(name: str) -> None:
    """Train `name` as the lines on standard input say."""
    import torch

    torch.set_num_threads(1)
    workload, _, ms = name.partition("+")
    model, _, batch = workload.partition(":")
    step, load = zoo.workload(model, int(batch)), prepare(float(ms) / 1e3)
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    print("{}", flush=True)
    for line in sys.stdin:
        spent: list[float] = []

        def whole(spent: list[float] = spent) -> None:
            spent.append(load())
            step()

        rate = zoo.ran(whole, float(line.split()[1]))["rate"]
        cpu = sum(spent[1:]) / max(len(spent) - 1, 1) * rate
        print(json.dumps({"rate": rate, "cpu": round(cpu, 4)}), flush=True)


def prepare(seconds: float) -> Callable[[], float]:
    """Work of about so many seconds on one core: always the same amount, and how long it took."""
    import torch

    images = torch.rand(1 << 16)

    def work(rounds: int) -> float:
        began = time.perf_counter()
        for _ in range(rounds):
            images.mul(0.99).add_(0.01).sqrt_()
        return time.perf_counter() - began

    work(200)
    rounds = round(seconds / (work(1000) / 1000))
    return lambda: work(rounds)


if __name__ == "__main__":
    main()
