"""Changes of batch sizes: Accordion's critical regimes and gradient noise scale.

Rules of the trainings that Shockwave (Zheng et al., NSDI 2023) replays. A schedule is
(batch size, epochs) in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

Schedule = tuple[tuple[int, int], ...]
# Samples of an epoch, and the largest batch that fits, by model.
SAMPLES = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
}
LARGEST = {"LM": 80, "ResNet-18": 256, "ResNet-50": 128, "Recommendation": 8192}
WARM_UP = 0.3  # the part of all epochs that Accordion leaves alone
RECOMMENDATION_HEAD = {512: 30, 1024: 30, 2048: 40}


def accordion(model: str, batch: int, epochs: int) -> Schedule:
    """The largest batch outside critical epochs and after the first part; else the initial one."""
    largest = LARGEST.get(model, batch)
    return compress(
        batch if epoch <= WARM_UP * epochs or is_critical(model, batch, epoch) else largest
        for epoch in range(epochs)
    )


def is_critical(model: str, batch: int, epoch: int) -> bool:
    """Return true if gradients change too fast in an epoch for a large batch."""
    if model == "LM":
        return epoch < 10
    if model == "ResNet-50":
        return epoch % 30 < 10
    if model == "ResNet-18":
        head = 20 if batch == 256 else 10
        return epoch < head or 150 <= epoch < 160 or 250 <= epoch < 260
    if model == "Recommendation":
        head = RECOMMENDATION_HEAD.get(batch, 10)
        return epoch < head or 60 <= epoch < 70 or 80 <= epoch < 90
    return True


def noise_scale(growth: Sequence[tuple[int, int]], batch: int, epochs: int) -> Schedule:
    """Batches that grow at epochs of `growth`, pairs of (first epoch, batch size).

    The last epoch is at the initial batch once the size has grown twice: so in the authors' files.
    """
    sizes = [batch] * epochs
    for first, size in growth:
        sizes[first:] = [size] * len(sizes[first:])
    grown = [first for first, size in growth if first > 0 and size > batch]
    if len(grown) > 1 and epochs > grown[1]:
        sizes[-1] = batch
    return compress(sizes)


def compress(sizes: Iterable[int]) -> Schedule:
    """Batch sizes of epochs as runs of equal ones."""
    return tuple((size, len(list(run))) for size, run in groupby(sizes))
