"""The same training as anybody would write it: `python plain_job.py MODEL BATCH STEPS`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import interference_measure as zoo

MODEL, BATCH, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"

torch.manual_seed(0)
net = (zoo.network(MODEL) if CUDA else torch.nn.Linear(64, 4)).to(DEVICE).train()
inputs = zoo.inputs(MODEL, BATCH) if CUDA else (torch.randn(BATCH, 64), torch.randint(4, (BATCH,)))
loss_of = zoo.loss(MODEL if CUDA else "resnet18-cifar")
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
for _ in range(STEPS):
    optimizer.zero_grad()
    with torch.autocast(DEVICE, torch.bfloat16, enabled=CUDA):
        loss = loss_of(net, *inputs)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()}")
