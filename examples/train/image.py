"""Tell which quarter of a picture is bright: elastic and batch-adaptive."""

import os

import torch
from pictures import network, pictures
from torch import nn

import weft_train as wt

EPOCHS = int(os.environ.get("EPOCHS", "5"))

train = pictures(2048, size=16, bright=0.35, seed=1)
test = pictures(512, size=16, bright=0.35, seed=2)
job = wt.init()
torch.manual_seed(0)
model = network(16, nn.BatchNorm2d)
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
