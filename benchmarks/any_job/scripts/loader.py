"""A small network whose device waits for workers that decode: loader.py STEPS"""

import sys

import torch
import torch.nn.functional as F
from progress import Progress
from torch import nn
from torch.utils.data import DataLoader, Dataset

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


class Pictures(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = torch.rand(3, self.size, self.size)
        for _ in range(3):
            picture = F.avg_pool2d(picture[None], 3, 1, 1)[0]
        return picture


def main(steps):
    torch.manual_seed(0)
    batch_size, size = (32, 160) if GPU else (4, 32)
    data = Pictures(steps * batch_size, size)
    loader = DataLoader(data, batch_size, num_workers=2, pin_memory=GPU)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    progress = Progress()
    for step, batch in enumerate(loader, 1):
        loss = net(batch.to(DEVICE, non_blocking=True)).pow(2).mean()
        progress.train(step, loss, optimizer)
    progress.end()


if __name__ == "__main__":
    main(int(sys.argv[1]))
