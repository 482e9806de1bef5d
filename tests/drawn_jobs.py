"""What drawn jobs of several tests have in common."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEVELS = {"normal": 0.0, "guaranteed": 1.0, "spot": -0.5, "opportunistic": -1.0}


class Drawn(NamedTuple):
    """A job's level, size and time, before a test makes a job of them."""

    priority: float
    low: bool
    length: float
    gpus: int
    elastic: bool
    due: float | None


def draw_work(rng: np.random.Generator, now: float, elastic: float) -> Drawn:
    """One that arrives at `now` and may change its size with the chance `elastic`."""
    level = str(rng.choice([*LEVELS], p=[0.5, 0.15, 0.2, 0.15]))
    low = LEVELS[level] < 0.0
    length = float(rng.choice([120.0, 900.0, 2400.0, 7200.0]))
    gpus = int(rng.choice([1, 1, 2, 2, 4]))
    varies = rng.random() < elastic
    due = None if low or rng.random() < 0.3 else now + length * float(rng.uniform(0.8, 4.0))
    return Drawn(LEVELS[level], low, length, gpus, varies, due)
