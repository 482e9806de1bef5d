"""Learn to spell with a small transformer: plain PyTorch, the twin of language.py."""

import os

import torch
from letters import Speller, sentences
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = int(os.environ.get("EPOCHS", "4"))

torch.manual_seed(0)
model = Speller()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = DataLoader(sentences(512, 32, seed=1), batch_size=16, shuffle=True)

for epoch in range(EPOCHS):
    for codes, following in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(codes).flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
