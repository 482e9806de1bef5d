"""A network that learns something, with its gradient noise measured in two ways.

    python learn.py image|language [CHECKS_FILE]

`weft_train` estimates the noise as it goes. At a few steps the training stops and the noise is
computed from its definition besides: the gradients of many batches at the same weights. Samples
are made on the device: pictures of ten classes under heavy noise, or words of a random grammar.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import weft_train as wt

WHAT = sys.argv[1]
CHECKS = Path(sys.argv[2]) if len(sys.argv) > 2 else None
CUDA = torch.cuda.is_available()
SAMPLES = 65_536 if CUDA else 2_048
BATCH = 128 if WHAT == "image" else 32
CHECK_AT = (100, 300, 600, 1_200, 2_400)
BATCHES = 64  # in a check
WORDS, LENGTH = 512, 128


class Numbers(Dataset[int]):
    """The numbers of samples; the samples themselves are on the device."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index


def pictures(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten coarse patterns under noise; one picture in ten has a wrong class."""
    coarse = torch.randn(10, 3, 8, 8, device=device)
    patterns = nn.functional.interpolate(coarse, 32, mode="bilinear")
    classes = torch.randint(10, (SAMPLES,), device=device)
    noise = torch.randn(SAMPLES, 3, 32, 32, device=device)
    wrong = torch.rand(SAMPLES, device=device) < 0.1
    labels = torch.where(wrong, torch.randint(10, (SAMPLES,), device=device), classes)
    return patterns[classes] / 6.0 + noise, labels


def sentences(device: torch.device) -> torch.Tensor:
    """Walks along a random grammar: each word is followed by one of a few, some far likelier."""
    following = torch.randint(WORDS, (WORDS, 8), device=device)
    chances = torch.distributions.Dirichlet(torch.full((8,), 0.5, device=device)).sample((WORDS,))
    words = [torch.randint(WORDS, (SAMPLES,), device=device)]
    for _ in range(LENGTH - 1):
        pick = torch.multinomial(chances[words[-1]], 1)
        words.append(following[words[-1]].gather(1, pick).squeeze(1))
    return torch.stack(words, 1)


def task(device: torch.device) -> tuple[Any, Callable[[Any, torch.Tensor], torch.Tensor]]:
    """The network, and the loss of samples by their numbers."""
    if WHAT == "image":
        from benchmarks.interference_measure import network

        images, classes = pictures(device)
        net = network("resnet18-cifar") if CUDA else small()
        return net, lambda net, at: nn.functional.cross_entropy(net(images[at]), classes[at])
    text = sentences(device)
    return Speaker(6, 384) if CUDA else Speaker(1, 32), lambda net, at: nn.functional.cross_entropy(
        net(text[at, :-1]).flatten(0, 1), text[at, 1:].flatten()
    )


class Speaker(nn.Module):
    """A transformer that guesses the next word."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, width // 32, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of the word that follows each."""
        length = words.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=words.device)
        places = self.place(torch.arange(length, device=words.device))
        return self.head(self.body(self.word(words) + places, mask, is_causal=True))


def small() -> nn.Module:
    """For machines without a GPU."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 32), nn.ReLU(), nn.Linear(32, 10))


def direct(loss_of: Callable[[torch.Tensor], torch.Tensor], bare: nn.Module) -> dict[str, float]:
    """Noise scale by definition: batches' gradients at the same weights, against their mean."""
    mean: list[torch.Tensor] | None = None
    squares = 0.0
    for at in batches():
        grads = torch.autograd.grad(loss_of(at), [*bare.parameters()])
        squares += sum(float(g.double().square().sum()) for g in grads) / BATCHES
        parts = [g / BATCHES for g in grads]
        mean = parts if mean is None else [m + g for m, g in zip(mean, parts, strict=True)]
    of_mean = sum(float(g.double().square().sum()) for g in mean or [])
    spread = (squares - of_mean) * BATCH * BATCHES / (BATCHES - 1)
    true = of_mean - spread / (BATCH * BATCHES)
    return {"noise": spread / true, "grad_sqr": true, "grad_var": spread / BATCH}


def batches() -> Iterator[torch.Tensor]:
    """Samples at random."""
    for _ in range(BATCHES):
        yield torch.randint(SAMPLES, (BATCH,), device=job.device)


job = wt.init(report_every_s=0.5)
torch.manual_seed(0)
net, loss_of = task(job.device)
bare = net.to(job.device).train()
net, optimizer = job.wrap(bare, torch.optim.SGD(bare.parameters(), lr=0.05, momentum=0.9))
# While the noise is checked the batch stays; else it may grow.
largest = BATCH if CHECKS else 16 * BATCH
loader = job.loader(Numbers(), BATCH, largest, max_per_gpu=largest)
step, checks = 0, []
for _ in job.epochs(100):
    if CHECKS is not None and step >= CHECK_AT[-1]:
        break
    for at in loader:
        with job.step(), torch.autocast(job.device.type, torch.bfloat16, enabled=CUDA):
            loss = loss_of(net, at.to(job.device))
            job.backward(loss)
        step += 1
        if CHECKS is not None and step in CHECK_AT:
            with torch.autocast(job.device.type, torch.bfloat16, enabled=CUDA):
                estimate = direct(lambda at: loss_of(bare, at), bare)
            running = {"noise": job.noise.scale, "grad_sqr": job.noise.sqr}
            checks.append(
                {"step": step, "loss": loss.item(), "direct": estimate, "running": running}
            )
            CHECKS.write_text(json.dumps(checks, indent=1) + "\n")
