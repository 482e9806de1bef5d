"""Learn to spell with a small transformer: elastic and batch-adaptive."""

import os

import torch
from torch import nn
from torch.utils.data import TensorDataset

import weft.train as wt

EPOCHS = int(os.environ.get("EPOCHS", "4"))
WORDS = ["weft", "warp", "loom", "yarn", "shuttle", "thread", "cloth", "weave", "spin", "knot"]
LETTERS = sorted({*"".join(WORDS), " "})


def sentences(count: int, length: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(WORDS), (count * length,), generator=generator).tolist()
    text = " ".join(WORDS[pick] for pick in picks)[: count * (length + 1)]
    codes = torch.tensor([LETTERS.index(letter) for letter in text]).view(count, length + 1)
    return TensorDataset(codes[:, :-1], codes[:, 1:])


class Speller(nn.Module):
    """One layer of attention over letters and their places."""

    def __init__(self, width: int = 48, length: int = 32) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(len(LETTERS), width), nn.Embedding(length, width)
        self.body = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, len(LETTERS))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Scores of the letter that follows each."""
        length = codes.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=codes.device)
        places = self.place(torch.arange(length, device=codes.device))
        return self.head(self.body(self.letter(codes) + places, mask, is_causal=True))


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
