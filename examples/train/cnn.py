"""Tell which quarter of a picture is bright: elastic, with all that a real script has.

One-cycle learning rates, 16-bit forward passes with a loss scaler, clipped gradients, validation.
"""

import os

import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

import weft.train as wt

EPOCHS = int(os.environ.get("EPOCHS", "5"))


def pictures(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(4, (count,), generator=generator)
    picture = torch.randn(count, 1, 8, 8, generator=generator)
    for quarter in range(4):
        top, left = 4 * (quarter // 2), 4 * (quarter % 2)
        picture[label == quarter, :, top : top + 4, left : left + 4] += 0.7
    return TensorDataset(picture, label)


def validate(model: nn.Module, batches: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(dim=1) == y).sum().item() for x, y in batches)
    return right / len(batches.dataset)


job = wt.init()
torch.manual_seed(0)
train, test = pictures(1024, seed=1), pictures(256, seed=2)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64, 4),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
model, optimizer = job.wrap(model, optimizer, clip=1.0, scaler=scaler)
loader = job.loader(train, batch_size=64, max_batch_size=256)
schedule = job.schedule(OneCycleLR(optimizer, max_lr=0.1, total_steps=EPOCHS * len(loader)))

for epoch in job.epochs(EPOCHS):
    model.train()
    for picture, label in loader:
        with job.step(), torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(picture), label)
            job.backward(loss)
    right = validate(model, DataLoader(test, batch_size=128))
    job.report(accuracy=right)
    print(f"epoch {epoch}: lr {schedule.get_last_lr()[0]:.8f} accuracy {right:.3f}")
