"""Tell which quarter of a picture is bright: plain PyTorch, the twin of image.py."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = int(os.environ.get("EPOCHS", "5"))


def pictures(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(4, (count,), generator=generator)
    picture = torch.randn(count, 1, 16, 16, generator=generator)
    for quarter in range(4):
        top, left = 8 * (quarter // 2), 8 * (quarter % 2)
        picture[label == quarter, :, top : top + 8, left : left + 8] += 0.35
    return TensorDataset(picture, label)


train, test = pictures(2048, seed=1), pictures(512, seed=2)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(256, 4),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.3)
loader = DataLoader(train, batch_size=64, shuffle=True)

for epoch in range(EPOCHS):
    model.train()
    for picture, label in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(picture), label)
        loss.backward()
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        right = (model(test.tensors[0]).argmax(dim=1) == test.tensors[1]).float().mean().item()
    print(f"epoch {epoch}: accuracy {right:.3f}")
