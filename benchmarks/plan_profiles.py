"""Memory and speed of execution plans on one GPU: `python -m benchmarks.plan_profiles --out FILE`.

A GPT of each size is trained by `weft_train.plan` under every plan in a process of its own: seconds
of an update, peak memory of GPU and host, and the losses, which must be the same under all. A plan
that memory is too small for is written down as such. Without a GPU the model is tiny.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import weft_train as wt

HEAD = 64  # width of one head of attention
LIMIT_S = 60.0  # of one plan
LATE_S = 20.0  # that the last one may take beyond the budget
NOISE = 0.02  # how far losses in 16 bits are from those of the first plan
PLANS = ("dp", "gc", "ga4", "offload", "ga4-gc", "gc-offload", "ga4-offload", "ga16")


@dataclass(frozen=True, slots=True)
class Size:
    """A GPT, and the rows of a step."""

    name: str
    blocks: int
    width: int
    context: int
    words: int
    batch: int

    @property
    def params(self) -> int:
        """Weights and biases."""
        block = 12 * self.width**2 + 13 * self.width
        ends = (self.words + self.context + 2) * self.width + (self.width + 1) * self.words
        return self.blocks * block + ends


SIZES = (
    Size("gpt-0.4b", 24, 1024, 1024, 50304, 32),
    Size("gpt-1.4b", 24, 2048, 1024, 50304, 32),
    Size("gpt-2.8b", 32, 2560, 1024, 50304, 32),
)
TINY = Size("gpt-tiny", 2, 64, 32, 128, 16)


class Embed(nn.Module):
    """Words and their places."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.places = nn.Embedding(size.context, size.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Vectors of words."""
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        summed: torch.Tensor = self.words(tokens) + places
        return summed.to(torch.bfloat16) if tokens.is_cuda else summed


class Block(nn.Module):
    """Attention, then two layers on each word."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What comes in, with what this block adds."""
        rows, length, width = x.shape
        inputs = self.inputs(self.before(x)).view(rows, length, 3, -1, HEAD)
        query, key, value = inputs.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        added: torch.Tensor = self.down(functional.gelu(self.up(self.between(x))))
        return x + added


class Gpt(nn.Module):
    """Which word comes next, computed in 16 bits on a GPU; weights have 32."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embed = Embed(size)
        self.blocks = nn.ModuleList(Block(size.width) for _ in range(size.blocks))
        self.head = nn.Sequential(nn.LayerNorm(size.width), nn.Linear(size.width, size.words))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the words that may come next."""
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
            x: torch.Tensor = self.embed(tokens)
            for layer in (*self.blocks, self.head):
                x = layer(x)
            return x


def mean_loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """How badly the next words were guessed."""
    return functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def read_batch(size: Size, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Counting upwards from somewhere by a small stride: the same tokens under every plan."""
    chance = torch.Generator().manual_seed(step)
    first = torch.randint(size.words, (size.batch, 1), generator=chance)
    stride = torch.randint(1, 4, (size.batch, 1), generator=chance)
    tokens = (first + stride * torch.arange(size.context + 1)) % size.words
    return tokens[:, :-1], tokens[:, 1:]


def train(size: Size, seconds: float) -> dict[str, Any]:
    """Train under the plan in `WEFT_PLAN`: one step to warm up, then some for so long."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens = [tuple(part.to(device) for part in read_batch(size, step)) for step in range(4)]

    def build() -> Gpt:
        with torch.device(device):
            return Gpt(size)

    training = wt.plan(
        build,
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
        mean_loss,
        batch=size.batch,
        layers=("embed", "blocks.*", "head"),
    )
    losses, took = [], []
    until = float("inf")
    for step in training.steps(12):
        began = time.monotonic()
        losses.append(training.step(*tokens[step % len(tokens)]))
        took.append(time.monotonic() - began)
        until = time.monotonic() + seconds if step == 0 else until
        if step > 1 and time.monotonic() > until:
            break
    step_s = median(took[1:])
    on_gpu = device == "cuda"
    return {
        "step_s": step_s,
        "samples_per_s": size.batch / step_s,
        "steps": len(took),
        "gpu_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else 0.0,
        "gpu_reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if on_gpu else 0.0,
        "host_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "losses": losses[:4],
    }


def run(size: Size, plan: str, seconds: float, limit_s: float) -> dict[str, Any]:
    """Train in a process of its own, so that nothing of one plan is left for the next."""
    reader, writer = mp.Pipe(duplex=False)
    process = mp.get_context("fork").Process(
        target=_train_there, args=(size, plan, seconds, writer)
    )
    process.start()
    writer.close()
    answer: dict[str, Any] = {"error": f"not done in {limit_s:.0f} s"}
    if reader.poll(limit_s):
        try:
            answer = reader.recv()
        except EOFError:
            answer = {"error": "ended without a word"}
    process.join(10.0)
    if process.is_alive():
        process.kill()
        process.join()
    return {"model": size.name, "plan": plan, **answer}


def _train_there(size: Size, plan: str, seconds: float, writer: Any) -> None:
    os.environ["WEFT_PLAN"] = plan
    try:
        writer.send(train(size, seconds))
    except torch.OutOfMemoryError as error:
        writer.send({"error": f"too little memory: {error}"[:200]})
    except Exception as error:
        writer.send({"error": f"{type(error).__name__}: {error}"[:500]})
        raise


def differ(rows: list[dict[str, Any]]) -> list[str]:
    """Plans whose losses are not those of the first plan of the same model."""
    first: dict[str, list[float]] = {}
    names = []
    for row in rows:
        if "losses" in row:
            pairs = zip(row["losses"], first.setdefault(row["model"], row["losses"]), strict=False)
            if any(abs(loss - other) > NOISE * abs(other) for loss, other in pairs):
                names.append(f"{row['model']} {row['plan']}")
    return names


def measure(
    sizes: tuple[Size, ...],
    plans: list[str],
    each_s: float,
    budget_s: float,
    keep: Callable[[list[Any]], None],
) -> list[dict[str, Any]]:
    """Every plan and size, as far as the budget goes; what is known is kept after each."""
    rows: list[dict[str, Any]] = []
    until = time.monotonic() + budget_s
    for plan, size in product(plans, sizes):
        left_s = until - time.monotonic()
        if left_s <= 0.0:
            print(f"{size.name} {plan}: no time is left", flush=True)
            continue
        rows.append(run(size, plan, each_s, min(LIMIT_S, left_s + LATE_S)))
        keep(rows)
        print(_describe(rows[-1]), flush=True)
    return rows


def _describe(row: dict[str, Any]) -> str:
    who = f"{row['model']:<10}{row['plan']:<14}"
    if "error" in row:
        return f"{who}{row['error'][:80]}"
    return (
        f"{who}{row['step_s']:8.3f} s {row['samples_per_s']:8.1f} samples/s"
        f"{row['gpu_gb']:8.1f} GB{row['host_gb']:8.1f} GB of host"
    )


def main() -> int:
    """Measure, write, and fail where a loss is not what it is under other plans."""
    parser = argparse.ArgumentParser(description="Memory and speed of plans on one GPU.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=float, default=2.5, help="seconds of steps of one plan")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds of all")
    parser.add_argument("--plans", nargs="+", default=PLANS)
    parser.add_argument("--cpu", action="store_true", help="a tiny model, without a GPU")
    asked = parser.parse_args()
    # The driver is asked by a child: a process that has spoken to it cannot be forked.
    sizes = (TINY,) if asked.cpu else SIZES
    if asked.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    facts = {
        "by": "python -m benchmarks.plan_profiles",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "models": [asdict(size) | {"params": size.params} for size in sizes],
    }

    def keep(rows: list[Any]) -> None:
        asked.out.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")

    rows = measure(sizes, asked.plans, asked.each, asked.budget, keep)
    wrong = differ(rows)
    for who in wrong:
        print(f"{who}: its losses are not those of the first plan")
    return 1 if wrong or not any("losses" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
