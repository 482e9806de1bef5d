"""What the guard of device memory costs a training: the same steps with it and without, in turns.

    python -m benchmarks.guard_cost [--pairs 400] [--steps 5]

Two processes train the same network on one GPU (a CPU where there is none), one of them with the
library in front of its calls of CUDA and a book; while one takes its steps the other stands still.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping

from rich.console import Console

from benchmarks.any_job.ways import guard_variables

LIMIT = 0.005
TRAIN = """
import sys, time
import torch
steps, gpu = int(sys.argv[1]), torch.cuda.is_available()
device, width = ("cuda", 4096) if gpu else ("cpu", 256)
torch.set_num_threads(1)
layers = [part for _ in range(6) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
net = torch.nn.Sequential(*layers).to(device)
optimizer, batch = torch.optim.AdamW(net.parameters()), torch.randn(1024, width, device=device)
def train(count):
    if gpu: torch.cuda.synchronize()
    began = time.perf_counter()
    for step in range(count):
        optimizer.zero_grad(); net(batch[step:]).pow(2).mean().backward(); optimizer.step()
    if gpu: torch.cuda.synchronize()
    return (time.perf_counter() - began) / count
train(20)
print("ready", flush=True)
for _ in sys.stdin: print(train(steps), flush=True)
"""


def main() -> int:
    """Measure, say it, and fail beyond the limit."""
    parser = argparse.ArgumentParser(description="What the guard of device memory costs.")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--steps", type=int, default=5)
    asked = parser.parse_args()
    with guard_variables() as guard:
        guard |= {"WEFT_JOB": "cost", "WEFT_ATTEMPT": "1"}
        ways = [start(asked.steps, env) for env in ({}, guard)]
        ratios, plain = [], []
        try:
            for pair in range(asked.pairs):
                first = pair % 2  # neither is always the first
                took = {way: ask(ways[way]) for way in (first, 1 - first)}
                ratios.append(took[1] / took[0])
                plain.append(took[0])
        finally:
            for way in ways:
                way.kill()
                way.wait()
    ratios.sort()
    cost, apart = statistics.median(ratios) - 1.0, round(0.98 * len(ratios) ** 0.5)
    low, high = (ratios[len(ratios) // 2 + side * apart] - 1.0 for side in (-1, 1))
    Console(width=120).print(
        f"a step of {1000 * statistics.median(plain):.2f} ms costs {100 * cost:+.2f} % more "
        f"with the guard (95 %: {100 * low:+.2f} to {100 * high:+.2f} %, {len(ratios)} pairs)"
    )
    return 0 if cost <= LIMIT else 1


def start(steps: int, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that trains when it is asked to, once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(steps)],
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", "it ended before it trained"
    return process


def ask(process: subprocess.Popen[str]) -> float:
    """Seconds of a step."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


if __name__ == "__main__":
    sys.exit(main())
