"""A training that keeps all of its data on the device from its first line on: big.py GB STEPS"""

import sys

import torch
from progress import Progress
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def main(size_gb, steps):
    torch.manual_seed(0)
    width = 2048 if GPU else 64
    rows = round(size_gb * 1e9 / (4 * width)) if GPU else 4096
    data = torch.empty(rows, width, device=DEVICE)
    data[:4096].normal_()
    net = nn.Sequential(*[nn.Linear(width, width), nn.GELU()] * 4, nn.Linear(width, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4, fused=GPU)
    progress = Progress()
    for step in range(1, steps + 1):
        batch = data[torch.randint(4096, (1024 if GPU else 8,), device=DEVICE)]
        progress.train(step, net(batch).pow(2).mean(), optimizer)
    progress.end()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
