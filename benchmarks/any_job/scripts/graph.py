"""A whole training step in one CUDA graph: graph.py STEPS"""

import sys

import torch
from progress import Progress
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def main(steps):
    torch.manual_seed(0)
    width = 768 if GPU else 32
    layers = [part for _ in range(12) for part in (nn.Linear(width, width), nn.ReLU())]
    net = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    batch = torch.randn(512 if GPU else 8, width, device=DEVICE)
    progress = Progress()

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = net(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    if not GPU:
        for step in range(1, steps + 1):
            progress(step, train().detach())
        progress.end()
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = train()
    for step in range(1, steps + 1):
        batch.normal_()
        graph.replay()
        if step % 20 == 0 or step == steps:
            progress(step, loss.detach())
    progress.end()


if __name__ == "__main__":
    main(int(sys.argv[1]))
