"""A function that tests send to jobs; a module of its own, as the job imports it."""

from __future__ import annotations

import sys


def train(rate: float, epochs: int = 1) -> dict[str, float]:
    sys.stdout.write(f"training at {rate}\n")
    if rate < 0:
        raise ValueError(f"rate is {rate}")
    return {"rate": rate, "epochs": epochs}
