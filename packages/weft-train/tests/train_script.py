"""A training script as a user writes it, which also notes what it saw."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import weft_train as wt

SAMPLES = 1000


class Line(Dataset[Any]):
    """A noisy linear law; a sample carries its id."""

    def __init__(self, count: int = SAMPLES) -> None:
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(count, 8, generator=generator)
        law = torch.arange(8.0)[:, None] / 4.0
        self.y = self.x @ law + 0.3 * torch.randn(count, 1, generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.x[at], self.y[at], at


def train(
    seen: str,
    *,
    epochs: int = 4,
    batch: int = 32,
    max_batch: int | None = None,
    max_per_gpu: int | None = None,
    scaling: str = "none",
    samples: int = SAMPLES,
    term_at: int = 0,
    term_rank: int = 0,
    die_at: int = 0,
    workers: int = 0,
    every_s: float = 600.0,
    ballast: int = 0,
) -> None:
    """Train; one JSON line a micro-batch into `seen`, and one at the end."""
    job = wt.init(checkpoint_every_s=every_s, report_every_s=0.02)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    model, optimizer = job.wrap(model, optimizer, scaling=scaling)
    schedule = job.state("schedule", torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5))
    if ballast:
        job.state("ballast", nn.Linear(1, ballast))
    dataset = Line(samples)
    loader = job.loader(dataset, batch, max_batch, max_per_gpu=max_per_gpu, num_workers=workers)
    notes = Path(seen)
    with notes.with_name(f"{notes.name}.{os.getpid()}").open("w", buffering=1) as out:
        for epoch in job.epochs(epochs):
            for x, y, ids in loader:
                note = {"epoch": epoch, "ids": ids.tolist(), "size": job.size, "rank": job.rank}
                with job.step():
                    loss = nn.functional.mse_loss(model(x), y)
                    job.backward(loss)
                    if job.rank == term_rank and job.steps + 1 == term_at:
                        os.kill(os.getpid(), signal.SIGTERM)
                    note |= {"batch": job.batch.total, "step": job.steps, "factor": job.lr_factor}
                    note |= {"loss": loss.item(), "lr": schedule.get_last_lr()[0]}
                    out.write(json.dumps(note) + "\n")
                if die_at and job.steps >= die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            schedule.step()
            with torch.no_grad():
                model.eval()
                final = nn.functional.mse_loss(model(dataset.x), dataset.y).item()
                model.train()
            job.report(test=final)
        if job.rank == 0:
            out.write(json.dumps({"final": final, "steps": job.steps}) + "\n")


def notes(folder: Path, name: str) -> list[dict[str, Any]]:
    """What all ranks wrote under a name."""
    return [
        json.loads(line)
        for file in sorted(folder.glob(f"{name}.*"))
        for line in file.read_text().splitlines()
    ]
