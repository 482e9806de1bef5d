"""Tell which quarter of a picture is bright: plain PyTorch, the twin of image.py."""

import os

import torch
from pictures import network, pictures
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = int(os.environ.get("EPOCHS", "5"))

train = pictures(2048, size=16, bright=0.35, seed=1)
test = pictures(512, size=16, bright=0.35, seed=2)
torch.manual_seed(0)
model = network(16, nn.BatchNorm2d)
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
