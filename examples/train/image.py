"""Tell which quarter of a picture is bright: elastic and batch-adaptive."""

import os

import torch
from torch import nn
from torch.utils.data import TensorDataset

import weft.train as wt

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
job = wt.init()
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(256, 4),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
model, optimizer = job.wrap(model, optimizer, scaling="adascale")
schedule = job.state("schedule", torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.3))
loader = job.loader(train, batch_size=64, max_batch_size=256)

for epoch in job.epochs(EPOCHS):
    model.train()
    for picture, label in loader:
        with job.step():
            loss = nn.functional.cross_entropy(model(picture), label)
            job.backward(loss)
    schedule.step()
    model.eval()
    with torch.no_grad():
        inputs, labels = (held.to(job.device) for held in test.tensors)
        right = (model(inputs).argmax(dim=1) == labels).float().mean().item()
    job.report(accuracy=right)
    if job.rank == 0:
        print(f"epoch {epoch}: accuracy {right:.3f}")
