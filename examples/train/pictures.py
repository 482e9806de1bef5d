"""Pictures with one bright quarter, and a small network that tells which it is."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pictures(count: int, *, size: int, bright: float, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(4, (count,), generator=generator)
    picture = torch.randn(count, 1, size, size, generator=generator)
    half = size // 2
    for quarter in range(4):
        top, left = half * (quarter // 2), half * (quarter % 2)
        picture[label == quarter, :, top : top + half, left : left + half] += bright
    return TensorDataset(picture, label)


def network(size: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), norm(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(size * size, 4),
    )  # fmt: skip


def validate(model: nn.Module, batches: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(dim=1) == y).sum().item() for x, y in batches)
    return right / len(batches.dataset)
