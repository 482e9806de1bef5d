"""One job of the mix, made elastic by `weft.train`: `python job.py MODEL BATCH STEPS`.

Inputs are made once on the GPU; the loader hands out sample numbers, so that checkpoints and
reports work as in any other script.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import weft.train as wt
from benchmarks.interference_measure import build

MODEL, BATCH, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SIDE = 64


def small(batch: int) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], object]:
    """A network for machines without a GPU, to try the benchmark itself."""
    net = torch.nn.Sequential(torch.nn.Linear(SIDE, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
    inputs = torch.randn(batch, SIDE), torch.randint(4, (batch,))
    return net, inputs, lambda net, x, y: torch.nn.functional.cross_entropy(net(x), y)


class Numbers(Dataset[int]):
    """The numbers of samples: putting a batch of them together costs next to nothing."""

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> int:
        return index


job = wt.init()
torch.manual_seed(0)
cuda = torch.cuda.is_available()
net, inputs, loss_of = build(MODEL, BATCH) if cuda else small(BATCH)
net = net.to(job.device).train()
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
net, optimizer = job.wrap(net, optimizer, scaling="none")
loader = job.loader(Numbers(), batch_size=BATCH)
for _ in job.epochs(1):
    for _ in loader:
        with job.step(), torch.autocast(job.device.type, torch.bfloat16, enabled=cuda):
            loss = loss_of(net, *inputs)
            job.backward(loss)
