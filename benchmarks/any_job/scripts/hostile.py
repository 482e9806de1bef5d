"""Takes all memory that is left of the device, then trains a little network: hostile.py STEPS"""

import sys

import torch
from progress import Progress
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def fill():
    held = []
    try:
        while GPU:
            held.append(torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE))
    except torch.cuda.OutOfMemoryError:
        del held[-4:]  # room for the training itself
    return held


def main(steps):
    torch.manual_seed(0)
    net = nn.Linear(256, 256).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    held = fill()
    progress = Progress()
    for step in range(1, steps + 1):
        loss = net(torch.randn(64, 256, device=DEVICE)).pow(2).mean()
        progress.train(step, loss, optimizer)
    progress.end()
    print(f"held {len(held)} GB", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
