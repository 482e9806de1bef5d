"""A small GPT that runs under any execution plan.

    WEFT_PLAN=tp2-zero1 torchrun --nproc-per-node 4 examples/train/gpt_plans.py

What it trains on, and so its loss, is the same under every plan.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional

import weft_train as wt
from weft_train.plans.planned import PlannedRank

WORDS, CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 64, 32, 64, 4, 4, 16
# Which layers tensor parallelism divides, and how: a column's results go to a row of the same rank.
TENSOR = {"*.query": "column", "*.key": "column", "*.value": "column", "*.out": "row"}
TENSOR |= {"*.up": "column", "*.down": "row"}
LAYERS = ("embed", "blocks.*", "head")


class Embed(nn.Module):
    """Words and their places."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Vectors of words."""
        return self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))


class Block(nn.Module):
    """Attention, then two layers on each word."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What comes in, with what this block adds."""
        x = x + self.attend(self.before(x))
        return x + self.down(functional.gelu(self.up(self.between(x))))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """What each word sees in those before it, by the heads that this rank has."""
        shape = (*x.shape[:2], -1, WIDTH // HEADS)
        q, k, v = (
            layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class Gpt(nn.Module):
    """Which word comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Embed()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the words that may come next."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def read_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Counting upwards from somewhere by a small stride: the same tokens whoever asks."""
    chance = torch.Generator().manual_seed(step)
    first = torch.randint(WORDS, (BATCH, 1), generator=chance)
    stride = torch.randint(1, 4, (BATCH, 1), generator=chance)
    tokens = (first + stride * torch.arange(CONTEXT + 1)) % WORDS
    return tokens[:, :-1], tokens[:, 1:]


def mean_loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """How badly the next words were guessed."""
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def begin() -> PlannedRank:
    """The GPT under the plan in `WEFT_PLAN`, from its last checkpoint on."""
    return wt.plan(
        Gpt,
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        mean_loss,
        batch=BATCH,
        layers=LAYERS,
        tensor=TENSOR,
        clip=1.0,
    )


def main(steps: int = 200) -> None:
    """Train for so many steps in all."""
    training = begin()
    for step in training.steps(steps):
        x, y = read_batch(step)
        loss = training.step(x[training.rows], y[training.rows])
        if training.rank == 0 and step % 20 == 0:
            print(f"step {step}  plan {training.layout.text}  loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
