"""Measure what the interference model needs, on a machine with one NVIDIA GPU and PyTorch.

    python benchmarks/interference_measure.py OUT_FOLDER [alone] [timeslicing] [mps]

`alone` profiles each workload by itself: step time, how much of it the GPU is busy, how many of its
processors the kernels fill, memory traffic and memory. The other two start one process for each
workload and run groups of two to four of them at once, under the driver's time slicing or under
MPS; a rate is steps per second together over alone, in the same processes. Nothing of Weft is
imported, so the file can be copied to any machine.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ALONE = [
    "resnet18-cifar:512",
    "resnet18-cifar:2048",
    "resnet50:32",
    "resnet50:128",
    "bert-base:8",
    "bert-base:32",
    "bert-base:128",
    "gpt2:16",
    "lstm:64",
    "dlrm:8192",
    "mobilenet_v3:256",
    "vit_b_16:64",
    "resnet18-cifar:128",
    "resnet18-cifar:4096",
    "resnet50:64",
    "resnet50:256",
    "vgg19:32",
    "vgg19:128",
    "vit_b_16:32",
    "vit_b_16:128",
    "mobilenet_v3:64",
    "bert-base:16",
    "bert-base:64",
    "gpt2:4",
    "gpt2:8",
    "gpt2:32",
    "lstm:16",
    "dlrm:2048",
]
GROUPS = """r b8|r l|b32 d|g l|r50 v|g v|b32 b32'|r l d|r r' r''|b8 r l|b32 l d|b32 r50 v|g l m
g b32 r50|g d r|m v r50|b8 b32 r50|l l' l''|b128 r l|r2k b32 d|r50s b8 l|v l d|m r d
r r' r'' r'''|r l d b8|b32 r50 g v|g l d r|m r50 b32 r|b8 r50s r l|v m l d|b128 r l d
l l' l'' d"""
NAMES = {
    "r": "resnet18-cifar:512",
    "r2k": "resnet18-cifar:2048",
    "r50s": "resnet50:32",
    "r50": "resnet50:128",
    "b8": "bert-base:8",
    "b32": "bert-base:32",
    "b128": "bert-base:128",
    "g": "gpt2:16",
    "l": "lstm:64",
    "d": "dlrm:8192",
    "m": "mobilenet_v3:256",
    "v": "vit_b_16:64",
}
ALONE_S, TOGETHER_S = 1.2, 2.5
TRACED_STEPS = 4
TOGETHER = 14  # processes at a time, for the host's memory


def main() -> None:
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
        return
    out, parts = Path(sys.argv[1]), sys.argv[2:] or ["alone", "timeslicing", "mps"]
    out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if part == "alone":
            write(out / "alone.csv", alone())
        else:
            write(out / f"groups-{part}.csv", groups(part))


def write(path: Path, rows: Iterator[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = None
        for row in rows:
            writer = writer or csv.DictWriter(file, list(row))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(*row.values(), flush=True)


def alone() -> Iterator[dict[str, object]]:
    """Solo features of every workload, each in its own process while the others rest."""
    for first in range(0, len(ALONE), TOGETHER):
        workers = [Worker(name) for name in ALONE[first : first + TOGETHER]]
        try:
            for worker in workers:
                worker.hear()
            for worker in workers:
                yield worker.ask("profile")
        finally:
            for worker in workers:
                worker.close()


def groups(discipline: str) -> Iterator[dict[str, object]]:
    """Rates of every member of every group."""
    sets = [line.split() for row in GROUPS.splitlines() for line in row.split("|")]
    env = dict(os.environ)
    if discipline == "mps":
        folder = tempfile.mkdtemp()
        env |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
    workers = {
        key: Worker(NAMES[key.rstrip("'")], env) for key in sorted({k for s in sets for k in s})
    }
    try:
        for worker in workers.values():
            worker.hear()
        base = {key: worker.ask(f"run {ALONE_S}")["rate"] for key, worker in workers.items()}
        for members in sets:
            for key in members:
                workers[key].tell(f"run {TOGETHER_S}")
            for key, answer in [(key, workers[key].hear()) for key in members]:
                yield {
                    "group": " ".join(members),
                    "size": len(members),
                    "workload": workers[key].name,
                    "alone": base[key],
                    "together": answer["rate"],
                    "norm": round(answer["rate"] / base[key], 4),
                }
    finally:
        for worker in workers.values():
            worker.close()
        if discipline == "mps":
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=env)


class Worker:
    """A process that trains one workload when told to."""

    script = __file__

    def __init__(self, name: str, env: dict[str, str] | None = None) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, self.script, "serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def tell(self, what: str) -> None:
        """Send a line."""
        assert self.process.stdin
        print(what, file=self.process.stdin, flush=True)

    def hear(self) -> dict[str, Any]:
        """Wait for the answer; the first says that the workload is ready."""
        assert self.process.stdout
        body: dict[str, Any] = json.loads(self.process.stdout.readline())
        return body

    def ask(self, what: str) -> dict[str, Any]:
        """Send a line and wait for its answer."""
        self.tell(what)
        return self.hear()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=30)


def serve(name: str) -> None:
    """Train `name` as the lines on standard input say."""
    import torch

    model, _, batch = name.partition(":")
    step = workload(model, int(batch))
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    print("{}", flush=True)
    for line in sys.stdin:
        what, *rest = line.split()
        answer = (
            profiled(model, int(batch), step) if what == "profile" else ran(step, float(rest[0]))
        )
        print(json.dumps(answer), flush=True)


def ran(step: Callable[[], None], seconds: float) -> dict[str, float]:
    """Steps a second, each synchronised."""
    import torch

    took: list[float] = []
    began = time.perf_counter()
    while not took or time.perf_counter() - began < seconds:
        at = time.perf_counter()
        step()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - at)
    # The first step meets neighbours that have not started and caches gone cold.
    return {"rate": round((len(took) - 1) / sum(took[1:]) if len(took) > 1 else 1 / took[0], 5)}


def profiled(model: str, batch: int, step: Callable[[], None]) -> dict[str, object]:
    """Solo features: the step's time as it is, what the GPU did in it from a trace of kernels."""
    import torch

    smi = subprocess.Popen(
        [
            "nvidia-smi",
            "--query-gpu=utilization.gpu,utilization.memory",
            "--format=csv,noheader,nounits",
            "-lms",
            "100",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    step_s = 1.0 / ran(step, 2.0)["rate"]
    smi.terminate()
    seen = [line.split(",") for line in smi.communicate()[0].splitlines() if line.count(",") == 1]
    gpu, memory = (statistics.median(float(row[i]) for row in seen[5:]) / 100 for i in (0, 1))
    busy_s, fill, occupancy, kernels = traced(step)
    return {
        "model": model,
        "batch": batch,
        "step_ms": round(1e3 * step_s, 3),
        "busy": round(min(busy_s / step_s, 1.0), 4),
        "fill": round(fill, 4),
        "occupancy": round(occupancy, 4),
        "kernels": kernels,
        "gpu_util": gpu,
        "memory_util": memory,
        "mem_gb": round(torch.cuda.max_memory_reserved() / 2**30, 3),
    }


def traced(step: Callable[[], None]) -> tuple[float, float, float, int]:
    """Busy seconds a step, the share of processors its kernels fill, occupancy, and kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(TRACED_STEPS):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    ran = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in ran)
    busy, end = 0.0, 0.0
    for begin, stop in spans:
        busy += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    kernels = [e for e in ran if e["cat"] == "kernel"]
    total = sum(e["dur"] for e in kernels)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    fill = occupancy = 0.0
    for e in kernels:
        x, y, z = e["args"]["grid"]
        fill += e["dur"] / total * min(1.0, x * y * z / processors)
        occupancy += e["dur"] / total * e["args"].get("est. achieved occupancy %", 0) / 100
    return busy / 1e6 / TRACED_STEPS, fill, occupancy, len(kernels) // TRACED_STEPS


def workload(model: str, batch: int) -> Callable[[], None]:
    """A training step (forward, backward, optimiser) in bf16 autocast on data already there."""
    import torch

    torch.manual_seed(0)
    net, inputs, loss_of = build(model, batch)
    net = net.cuda().train()
    if model in ("bert-base", "gpt2", "vit_b_16"):
        optimiser: Any = torch.optim.AdamW(net.parameters(), lr=1e-4)
    else:
        optimiser = torch.optim.SGD(
            net.parameters(), lr=0.01, momentum=0.0 if model == "dlrm" else 0.9
        )

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(net, *inputs)
        loss.backward()
        optimiser.step()

    return step


def build(model: str, batch: int) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    """The network, its inputs, and the loss."""
    return network(model), inputs(model, batch), loss(model)


def network(model: str) -> Any:
    """A network by name, with fresh weights."""
    if model in ("lstm", "dlrm"):
        return Speech() if model == "lstm" else Clicks()
    if model in ("bert-base", "gpt2"):
        import transformers

        if model == "gpt2":
            return transformers.GPT2LMHeadModel(transformers.GPT2Config())
        return transformers.BertForQuestionAnswering(transformers.BertConfig())
    import torchvision.models as zoo

    maker = {"resnet18-cifar": "resnet18", "mobilenet_v3": "mobilenet_v3_large"}.get(model, model)
    return getattr(zoo, maker)(num_classes=10 if model == "resnet18-cifar" else 1000)


def inputs(model: str, batch: int) -> tuple[Any, ...]:
    """So many samples for a network, on the GPU, all of them noise."""
    import torch

    if model == "gpt2":
        return (labels(50_000, batch, 512),)
    if model == "bert-base":
        return labels(30_000, batch, 384), labels(384, batch)
    if model == "lstm":
        return torch.randn(batch, 400, 161, device="cuda"), labels(29, batch * 400)
    if model == "dlrm":
        dense, clicks = torch.randn(batch, 13, device="cuda"), torch.rand(batch, device="cuda")
        return dense, labels(200_000, 26, batch), clicks
    side, classes = (32, 10) if model == "resnet18-cifar" else (224, 1000)
    return torch.randn(batch, 3, side, side, device="cuda"), labels(classes, batch)


def loss(model: str) -> Callable[..., Any]:
    """What a network's training makes small, given the network and its inputs."""
    from torch.nn import functional as f

    if model == "gpt2":
        return lambda net, x: net(input_ids=x, labels=x).loss
    if model == "bert-base":
        return lambda net, x, y: net(input_ids=x, start_positions=y, end_positions=y).loss
    if model == "lstm":
        return lambda net, x, y: f.cross_entropy(net(x).flatten(0, 1), y)
    if model == "dlrm":
        return lambda net, x, i, y: f.binary_cross_entropy_with_logits(net(x, i).float(), y)
    return lambda net, x, y: f.cross_entropy(net(x), y)


def labels(classes: int, *shape: int) -> Any:
    """Whole numbers below `classes`."""
    import torch

    return torch.randint(classes, shape, device="cuda")


def Speech() -> Any:  # noqa: N802 - builds a network
    """Five bidirectional layers, 800 wide, over 400 frames."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.LSTM(161, 800, 5, batch_first=True, bidirectional=True)
            self.head = torch.nn.Linear(1600, 29)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(x)[0])

    return Net()


def Clicks() -> Any:  # noqa: N802 - builds a network
    """26 tables of 200,000 rows by 64, two small perceptrons and pairwise products."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(200_000, 64) for _ in range(26))
            self.bottom = nn.Sequential(
                nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64)
            )
            self.top = nn.Sequential(
                nn.Linear(64 + 27 * 27, 512),
                nn.ReLU(),
                nn.Linear(512, 256),
                nn.ReLU(),
                nn.Linear(256, 1),
            )

        def forward(self, x: Any, i: Any) -> Any:
            dense = self.bottom(x)
            rows = torch.stack([dense, *(t(k) for t, k in zip(self.tables, i, strict=True))], 1)
            pairs = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
            return self.top(torch.cat([dense, pairs], 1)).squeeze(1)

    return Net()


if __name__ == "__main__":
    main()
