"""A training whose validation takes much memory for a moment: spike.py GB STEPS"""

import sys
import time

import torch
from progress import Progress
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
EVERY, LONG_S = 300, 0.3


def validate(size_gb):
    whole = torch.empty(round(size_gb * 1e9 / 4) if GPU else 1000, device=DEVICE)
    whole[:1000].normal_()
    time.sleep(LONG_S)
    del whole
    if GPU:
        torch.cuda.empty_cache()


def main(size_gb, steps):
    torch.manual_seed(0)
    width = 2048 if GPU else 64
    kept = torch.zeros(250_000_000 if GPU else 1000, device=DEVICE)
    net = nn.Sequential(*[nn.Linear(width, width), nn.GELU()] * 4, nn.Linear(width, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4, fused=GPU)
    progress = Progress()
    for step in range(1, steps + 1):
        batch = torch.randn(1024 if GPU else 8, width, device=DEVICE)
        progress.train(step, net(batch).pow(2).mean() + kept[0], optimizer)
        if step % EVERY == 0:
            validate(size_gb)
    progress.end()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
