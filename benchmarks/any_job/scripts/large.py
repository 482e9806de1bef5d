"""A network whose weights and optimizer fill most of a device: large.py GB STEPS"""

import sys

import torch
from progress import Progress
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def main(size_gb, steps):
    torch.manual_seed(0)
    width = 16384 if GPU else 64
    # Weights, gradients and two moments of each layer, four bytes a number.
    count = max(1, round(size_gb * 1e9 / (16 * width * width))) if GPU else 4
    with torch.device(DEVICE):
        net = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(count)])
    optimizer = torch.optim.Adam(net.parameters(), 1e-5, fused=GPU)
    progress = Progress()
    for step in range(1, steps + 1):
        batch = torch.randn(64 if GPU else 4, width, device=DEVICE)
        loss = net(batch).pow(2).mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        progress(step, loss.detach())
    progress.end()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
