"""Which job of a tenant is next: the least served, or the one most likely to end soon."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.core.state.table import Floats

CLASSES = 5
FEWEST_BINS = 5  # of a histogram that says something

Histogram = Mapping[int, int]


def classify(ltgf: Floats, classes: int = CLASSES) -> Floats:
    """The discrete class of each fairness ratio: lower is served less; 0 where nothing was."""
    log = np.log(np.maximum(ltgf, 1e-300))
    f = -log / np.sqrt(1.0 + log**2)
    numbers: Floats = classes - np.floor((f + 1.0) / 2.0 * classes)
    numbers[ltgf <= 0.0] = 0.0
    return numbers


def chance_to_end(executed: float, lease: float, ended: Histogram) -> float:
    """Probability that a job ends within its next lease, given how long it has run.

    `ended` counts jobs by the number of whole leases they took; beyond them the end is near.
    """
    here = int(executed // lease)
    behind = sum(count for bin_, count in ended.items() if bin_ >= here)
    return ended.get(here, 0) / behind if behind else 1.0


def reward(
    executed: Floats, gpus: Floats, lease: float, lengths: Mapping[float, Histogram]
) -> Floats:
    """The chance to end within a lease for each GPU: jobs of the same size are the evidence."""
    everybody: dict[int, int] = {}
    for counts in lengths.values():
        for bin_, count in counts.items():
            everybody[bin_] = everybody.get(bin_, 0) + count
    chances = np.zeros(len(executed))
    known: dict[tuple[float, int], float] = {}
    for i, (ran, size) in enumerate(zip(executed.tolist(), gpus.tolist(), strict=True)):
        key = (size, int(ran // lease))
        if key not in known:
            own = lengths.get(size, {})
            evidence = own if len(own) >= FEWEST_BINS else everybody
            known[key] = chance_to_end(ran, lease, evidence)
        chances[i] = known[key] / max(size, 1e-9)
    return chances
