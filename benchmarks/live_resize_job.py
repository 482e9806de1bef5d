"""The job of the live-resize benchmarks: a training script that notes every step it takes.

    python live_resize_job.py FOLDER LAYERS EPOCHS [SAVE_S [DEVICE]]

Each layer is 3.2 MB of state, with Adam; SAVE_S is how often it is saved at most, DEVICE where all
ranks compute, if not where they were put. Lines go into
FOLDER, a file a process: step, epoch, rank, size and device, when the step began and ended by the
monotonic clock, its loss and the samples it was of.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH = 512
SAMPLES = 2048
BATCH = 16
TAIL = 2_000  # characters of a log
LAYER_MB = 3.0 * 4.0 * (WIDTH * WIDTH + WIDTH) / 1e6


def layers_of(state_mb: float) -> int:
    """Layers that make about so much state."""
    return max(round(state_mb / LAYER_MB), 1)


def train(folder: Path, layers: int, epochs: int, save_s: float, on: str | None) -> None:
    """Train a deep and narrow network on a sum, as a script of a user does."""
    import torch
    from torch import nn

    import weft_train as wt
    from weft.base.environment import Environment

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
            self.out = nn.Linear(WIDTH, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + 0.05 * torch.relu(block(x))
            result: torch.Tensor = self.out(x)
            return result

    class Sums(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.x = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(7))
            self.y = self.x.sum(1, keepdim=True)

        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor, int]:
            return self.x[at], self.y[at], at

    if on == "cuda":  # ranks of one GPU meet only if NCCL takes them for as many machines
        os.environ |= {"NCCL_HOSTID": f"rank-{os.getpid()}", "NCCL_SOCKET_IFNAME": "lo"}
    torch.manual_seed(0)
    device = Environment.read().device
    job = wt.init(checkpoint_every_s=save_s, report_every_s=0.1, device=on)
    net = Net().to(job.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    model, optimizer = job.wrap(net, optimizer, scaling="none")
    loader = job.loader(Sums(), BATCH)
    with (folder / f"{os.getpid()}.jsonl").open("a", buffering=1) as out:
        for epoch in job.epochs(epochs):
            for x, y, ids in loader:
                began = time.monotonic()
                with job.step():
                    loss = nn.functional.mse_loss(model(x), y)
                    job.backward(loss)
                value = loss.item()  # a GPU has done the step then
                row = (job.steps, epoch, job.rank, job.size, device, began, time.monotonic())
                out.write(json.dumps([*row, value, ids.tolist()]) + "\n")


@dataclass(frozen=True, slots=True)
class Row:
    """One rank's part in one step."""

    step: int
    epoch: int
    rank: int
    size: int
    device: int
    began: float
    ended: float
    loss: float
    ids: tuple[int, ...]

    @classmethod
    def of(cls, line: str | bytes) -> Row:
        """From a line of the script."""
        values = json.loads(line)
        values[-1] = tuple(values[-1])
        return cls(*values)


def last_words(folder: Path) -> str:
    """The ends of what ranks below a folder wrote, the newest last."""
    logs = [path for path in folder.rglob("*.log") if path.is_file()]
    logs.sort(key=lambda path: path.stat().st_mtime)
    return "\n".join(f"{log}:\n{log.read_text()[-TAIL:]}" for log in logs[-4:])


def read_rows(folder: Path) -> dict[int, list[Row]]:
    """What all processes noted, by step; a line that was cut off by a kill is left out."""
    by_step: dict[int, list[Row]] = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            if line.endswith("]]"):
                row = Row.of(line)
                by_step.setdefault(row.step, []).append(row)
    return dict(sorted(by_step.items()))


def losses_of(by_step: dict[int, list[Row]]) -> dict[int, float]:
    """The mean loss of each step over its samples; of steps done twice, the last time."""
    losses = {}
    for step, rows in by_step.items():
        last = latest(rows)
        count = sum(len(row.ids) for row in last)
        losses[step] = sum(row.loss * len(row.ids) for row in last) / count
    return losses


def without_abandoned(by_step: dict[int, list[Row]]) -> dict[int, list[Row]]:
    """Without steps beyond the last one of all: they were done, lost, and not done again yet.

    Nor with that one itself, which somebody may have been killed in.
    """
    end = max(by_step.values(), key=lambda rows: max(row.ended for row in rows))[0].step
    return {step: rows for step, rows in by_step.items() if step < end}


def latest(rows: Iterable[Row]) -> list[Row]:
    """The parts of a step as it was done the last time: those that overlap the last one."""
    rows = sorted(rows, key=lambda row: row.ended)
    return [row for row in rows if row.ended >= rows[-1].began]


if __name__ == "__main__":
    train(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]) if len(sys.argv) > 4 else 3600.0,
        sys.argv[5] if len(sys.argv) > 5 else None,
    )
