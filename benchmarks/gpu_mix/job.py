"""One job of the mix, made elastic by `weft_train`: `python job.py MODEL BATCH STEPS [LARGEST]`.

Inputs are noise, made on the GPU once for each batch size; the loader hands out sample numbers, so
that checkpoints and reports work as in any other script. With LARGEST the batch may grow to it.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import weft_train as wt
from benchmarks import interference_measure as zoo

MODEL, BATCH, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LARGEST = int(sys.argv[4]) if len(sys.argv) > 4 else BATCH
EPOCH = min(STEPS, 5_000)  # in steps
SIDE = 64
CUDA = torch.cuda.is_available()


class Numbers(Dataset[int]):
    """The numbers of samples: putting a batch of them together costs next to nothing."""

    def __len__(self) -> int:
        return BATCH * EPOCH

    def __getitem__(self, index: int) -> int:
        return index


def network() -> Any:
    """What is trained; on machines without a GPU something small, to try the benchmark itself."""
    if CUDA:
        return zoo.network(MODEL)
    return torch.nn.Sequential(torch.nn.Linear(SIDE, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))


@cache
def inputs(batch: int) -> tuple[Any, ...]:
    """The samples of a step."""
    if CUDA:
        return zoo.inputs(MODEL, batch)
    return torch.randn(batch, SIDE), torch.randint(4, (batch,))


job = wt.init(report_every_s=0.25)
torch.manual_seed(0)
net = network().to(job.device).train()
loss_of = zoo.loss(MODEL if CUDA else "resnet18-cifar")
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
net, optimizer = job.wrap(net, optimizer, scaling="none")
loader = job.loader(Numbers(), BATCH, LARGEST, max_per_gpu=LARGEST)
for _ in job.epochs(STEPS // EPOCH):
    for numbers in loader:
        with job.step(), torch.autocast(job.device.type, torch.bfloat16, enabled=CUDA):
            loss = loss_of(net, *inputs(len(numbers)))
            job.backward(loss)
