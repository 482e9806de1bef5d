"""Sentences of a few words, and a small transformer that learns to spell them."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

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
