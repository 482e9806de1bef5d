"""What `weft.train` adds to a training step, beside the same loop in plain PyTorch.

Both loops run in one process, a stretch of steps of each in turn, so that whatever else the machine
does meets both. Compared are medians over the stretches of CPU seconds a step, of the first rank.
A live agent listens to the reports.
`python -m benchmarks.train_overhead [--rounds N] [--ranks]`.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROUNDS = 25
STRETCH_S = 0.25
LIMIT = 0.02


def run(rounds: int = ROUNDS, ranks: bool = False) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/tmp") as scratch:
        agent = listening(Path(scratch) / "agent")
        found: dict[str, float] = {}
        for name in WORKLOADS:
            found |= measured(name, rounds, 1, {"WEFT_JOB": name, "WEFT_AGENT": agent})
            if ranks:
                found |= measured(name, rounds, 2, {"WEFT_JOB": name, "WEFT_AGENT": agent})
    return found


def measured(name: str, rounds: int, ranks: int, env: dict[str, str]) -> dict[str, float]:
    """A comparison in processes of its own."""
    context = mp.get_context("spawn")
    out = context.SimpleQueue()
    port = str(free_port())
    processes = []
    for rank in range(ranks):
        own = {**env, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}  # fmt: skip
        processes.append(context.Process(target=compare, args=(name, rounds, own, out)))
        processes[-1].start()
    for process in processes:
        process.join()
        if process.exitcode:
            sys.exit(f"{name} failed with exit code {process.exitcode}")
    plain_s, weft_s = out.get()
    what = f"{name}, {ranks} rank{'s' * (ranks > 1)}"
    return {
        f"{what}, plain ms": plain_s * 1e3,
        f"{what}, weft ms": weft_s * 1e3,
        f"{what}, overhead": weft_s / plain_s - 1.0,
    }


def compare(name: str, rounds: int, env: dict[str, str], out: Any) -> None:
    os.environ.update(env)
    import torch

    torch.set_num_threads(1)
    alone = env["WORLD_SIZE"] == "1"
    clock = time.process_time
    weft, plain = with_weft(*WORKLOADS[name]()), without(*WORKLOADS[name](), alone=alone)
    warm = 12
    took = {loop: stretch(loop, warm, clock) for loop in (plain, weft)}
    steps = max(4, int(STRETCH_S / took[plain])) if alone else 12
    ratios, plains = [], []
    for turn in range(rounds):
        order = (plain, weft) if turn % 2 == 0 else (weft, plain)
        took = {loop: stretch(loop, steps, clock) for loop in order}
        ratios.append(took[weft] / took[plain])
        plains.append(took[plain])
    if env["RANK"] == "0":
        middle = statistics.median(plains)
        out.put((middle, middle * statistics.median(ratios)))


def stretch(loop: Iterator[None], steps: int, clock: Callable[[], float]) -> float:
    """Seconds a step."""
    began = clock()
    for _ in range(steps):
        next(loop)
    return (clock() - began) / steps


def without(model: Any, dataset: Any, loss_of: Any, batch: int, *, alone: bool) -> Iterator[None]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    sampler: Any = None
    if not alone:
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
        sampler, batch = DistributedSampler(dataset), batch // dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(dataset, batch, shuffle=alone, sampler=sampler, drop_last=True)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
            yield


def with_weft(model: Any, dataset: Any, loss_of: Any, batch: int) -> Iterator[None]:
    import torch

    import weft.train as wt

    job = wt.init()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = job.wrap(model, optimizer, scaling="adascale")
    loader = job.loader(dataset, batch, max_batch_size=batch)
    for _ in job.epochs(1_000_000):
        for x, y in loader:
            with job.step():
                job.backward(loss_of(model(x), y))
            yield


def image() -> tuple[Any, Any, Any, int]:
    """A small convolutional network on 32 x 32 pictures."""
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip
    data = torch.utils.data.TensorDataset(torch.randn(1024, 3, 32, 32), torch.arange(1024) % 10)
    return model, data, nn.functional.cross_entropy, 64


def language() -> tuple[Any, Any, Any, int]:
    """A two-layer transformer over 64 characters."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(64, 64)
            layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.body(self.embed(x)))
            return out

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())

    text = torch.randint(64, (1024, 64))
    return Model(), torch.utils.data.TensorDataset(text, text.roll(-1, 1)), loss, 16


def regression() -> tuple[Any, Any, Any, int]:
    """A perceptron of three layers."""
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    x = torch.randn(8192, 64)
    data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))
    return model, data, nn.functional.mse_loss, 128


WORKLOADS: dict[str, Callable[[], tuple[Any, Any, Any, int]]] = {
    "image": image,
    "language": language,
    "regression": regression,
}


def listening(path: Path) -> str:
    """An agent that hears everything and says nothing."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(str(path))
    door.listen(8)

    def hear(line: socket.socket) -> None:
        while line.recv(65_536):
            pass

    def accept() -> None:
        while True:
            line, _ = door.accept()
            threading.Thread(target=hear, args=(line,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return str(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--ranks", action="store_true", help="also with two gloo ranks")
    asked = parser.parse_args()
    found = run(asked.rounds, asked.ranks)
    for metric, value in found.items():
        print(f"{metric:<36} {value:>10.4f}")
    worst = max(value for metric, value in found.items() if "1 rank, overhead" in metric)
    if worst > LIMIT:
        sys.exit(f"expected at most {LIMIT:.0%} over plain PyTorch, found {worst:.1%}")


if __name__ == "__main__":
    main()
