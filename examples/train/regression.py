"""Fit a noisy law with a small perceptron: elastic and batch-adaptive."""

import os

import torch
from torch import nn
from torch.utils.data import TensorDataset

import weft_train as wt

EPOCHS = int(os.environ.get("EPOCHS", "15"))

torch.manual_seed(0)
x = torch.randn(4096, 16)
y = torch.sin(x[:, :4].sum(dim=1, keepdim=True)) + 0.1 * torch.randn(4096, 1)
train, test = TensorDataset(x[:3584], y[:3584]), (x[3584:], y[3584:])

job = wt.init()
model = nn.Sequential(
    nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer = job.wrap(model, optimizer, scaling="adascale")
loader = job.loader(train, batch_size=64, max_batch_size=512)

for epoch in job.epochs(EPOCHS):
    for features, target in loader:
        with job.step():
            loss = nn.functional.mse_loss(model(features), target)
            job.backward(loss)
    with torch.no_grad():
        inputs, wanted = (held.to(job.device) for held in test)
        error = nn.functional.mse_loss(model(inputs), wanted).item()
    job.report(error=error)
    if job.rank == 0:
        print(f"epoch {epoch}: test error {error:.4f}")
