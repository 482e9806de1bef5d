"""What the watcher costs a training of short steps: the same steps watched and bare, in turns.

    python -m benchmarks.watch_cost [--step-ms 3] [--pairs 400] [--steps 5]

One process trains all the time and takes the watcher's hook away and back again, so that both kinds
of steps meet the same machine; a listener takes what the watcher sends. Times are CPU seconds of
the process, and so is the clock by which the watcher sends: a busy machine gives a process less CPU
time, in which the watcher would send as often as on a quiet one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from rich.console import Console

from weft.node.ranks.process import watcher_variables

LIMIT = 0.005
TRAIN = """
import json, sys, time
import torch
from torch.optim import optimizer as optimizers
step_s, pairs, steps = float(sys.argv[1]) / 1e3, int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
torch.set_num_threads(1)
width = 64
def build(width):
    layers = [part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers)
    return net, torch.optim.AdamW(net.parameters()), torch.randn(64, width)
def train(count):
    began = time.process_time()
    for _ in range(count):
        optimizer.zero_grad(); net(batch).pow(2).mean().backward(); optimizer.step()
    return (time.process_time() - began) / count
while True:  # as wide as makes a step long enough
    net, optimizer, batch = build(width)
    train(20)
    if train(20) >= step_s or width >= 4096: break
    width = int(width * 1.25)
hooks = optimizers._global_optimizer_post_hooks
watcher = dict(hooks)
assert watcher, "nothing watches this process"
counting, rest = sys.modules["_weft_watch.counting"], 0.0  # CPU time of bare steps
counting.COUNTER._clock = lambda: 1e9 + time.process_time() - rest
counting.COUNTER.begin_again()
bare, watched = [], []
for turn in range(2 * pairs):
    hooks.clear()
    on = turn % 4 in (1, 2)  # bare, watched, watched, bare: neither is always the first
    if on: hooks.update(watcher)
    (watched if on else bare).append(train(steps))
    if not on: rest += steps * bare[-1]
print(json.dumps({"bare": bare, "watched": watched}))
"""


def main() -> int:
    """Measure, say it, and fail beyond the limit."""
    parser = argparse.ArgumentParser(description="What watching costs.")
    parser.add_argument("--step-ms", type=float, default=3.0)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--steps", type=int, default=5)
    asked = parser.parse_args()
    measured = measure(asked.step_ms, asked.pairs, asked.steps)
    pairs = zip(measured["watched"], measured["bare"], strict=True)
    ratios = sorted(watched / bare for watched, bare in pairs)
    cost = statistics.median(ratios) - 1.0
    # How sure the median is: its order statistics at 95 %.
    apart = round(0.98 * len(ratios) ** 0.5)
    low, high = (ratios[len(ratios) // 2 + side * apart] - 1.0 for side in (-1, 1))
    bare_ms = 1000 * statistics.median(measured["bare"])
    Console(width=120).print(
        f"a step of {bare_ms:.2f} ms costs {100 * cost:+.2f} % more watched "
        f"(95 %: {100 * low:+.2f} to {100 * high:+.2f} %, {len(ratios)} pairs)"
    )
    return 0 if cost <= LIMIT else 1


def measure(step_ms: float, pairs: int, steps: int) -> dict[str, list[float]]:
    """CPU seconds of a step in each turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "agent.sock"))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(8)
        threading.Thread(target=_swallow, args=(listener,), daemon=True).start()
        who = {"WEFT_AGENT": path, "WEFT_JOB": "cost", "WEFT_ATTEMPT": "1", "OMP_NUM_THREADS": "1"}
        env = {**os.environ, **who, **watcher_variables(os.environ.get("PYTHONPATH", ""))}
        command = [sys.executable, "-c", TRAIN, str(step_ms), str(pairs), str(steps)]
        ran = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        body: dict[str, list[float]] = json.loads(ran.stdout.splitlines()[-1])
        return body


def _swallow(listener: socket.socket) -> None:
    while True:
        line, _ = listener.accept()
        while line.recv(65_536):
            pass


if __name__ == "__main__":
    sys.exit(main())
