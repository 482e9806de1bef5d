"""Tell which quarter of a picture is bright: elastic, with all that a real script has.

One-cycle learning rates, 16-bit forward passes with a loss scaler, clipped gradients, validation.
"""

import os

import torch
from pictures import network, pictures, validate
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

import weft_train as wt

EPOCHS = int(os.environ.get("EPOCHS", "5"))

job = wt.init()
torch.manual_seed(0)
train = pictures(1024, size=8, bright=0.7, seed=1)
test = pictures(256, size=8, bright=0.7, seed=2)
model = network(8, lambda channels: nn.GroupNorm(4, channels))
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
