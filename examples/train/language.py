"""Learn to spell with a small transformer: elastic and batch-adaptive."""

import os

import torch
from letters import Speller, sentences
from torch import nn

import weft_train as wt

EPOCHS = int(os.environ.get("EPOCHS", "4"))

job = wt.init()
torch.manual_seed(0)
model = Speller()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, optimizer = job.wrap(model, optimizer, scaling="sqrt", clip=1.0)
loader = job.loader(sentences(512, 32, seed=1), batch_size=16, max_batch_size=64)

loss = torch.tensor(torch.nan)  # an epoch that was over before a restart says no more
for epoch in job.epochs(EPOCHS):
    for codes, following in loader:
        with job.step():
            loss = nn.functional.cross_entropy(model(codes).flatten(0, 1), following.flatten())
            job.backward(loss)
    if job.rank == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")
