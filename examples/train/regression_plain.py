"""Fit a noisy law with a small perceptron: plain PyTorch, the twin of regression.py."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = int(os.environ.get("EPOCHS", "15"))

torch.manual_seed(0)
x = torch.randn(4096, 16)
y = torch.sin(x[:, :4].sum(dim=1, keepdim=True)) + 0.1 * torch.randn(4096, 1)
train, test = TensorDataset(x[:3584], y[:3584]), (x[3584:], y[3584:])

model = nn.Sequential(
    nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(train, batch_size=64, shuffle=True)

for epoch in range(EPOCHS):
    for features, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), target)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(test[0]), test[1]).item()
    print(f"epoch {epoch}: test error {error:.4f}")
