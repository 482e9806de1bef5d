"""From counts to rounds: which jobs run when in the window, and which fill what is idle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.state.table import Bools, Floats, Rows
from weft.policies.shockwave.welfare import Counts

EPS = 1e-9


def place_rounds(counts: Counts, gangs: Floats, gpus: float, rounds: int, order: Rows) -> Bools:
    """Jobs x rounds: round by round jobs that must run in all that is left, then as in `order`.

    With single GPUs every job gets its count: jobs that must run always fit, for all counts
    together do. Gangs may leave gaps, and a job then gets fewer rounds; fillers take those.
    """
    left = counts.copy()
    runs = np.zeros((len(counts), rounds), dtype=bool)
    for now in range(rounds):
        room = gpus
        must = left[order] >= rounds - now
        for job in np.concatenate([order[must], order[~must]]).tolist():
            if left[job] > 0 and gangs[job] <= room + EPS:
                runs[job, now] = True
                left[job] -= 1
                room -= gangs[job]
    return runs


def order_early(counts: Counts, gangs: Floats, weight: Floats) -> Rows:
    """Jobs by how much a GPU-round of theirs that comes early is worth.

    Greedy for the least sum of weights times mean rounds; large gangs go first among equals, since
    they find gaps last.
    """
    worth = weight / np.maximum(counts * gangs, EPS)
    return np.lexsort((-gangs, -worth))


def mean_rounds(runs: Bools, weight: Floats) -> float:
    """Sum over jobs of weight times the mean index of their rounds."""
    index = np.arange(runs.shape[1])
    held = runs.sum(axis=1)
    some = held > 0
    return float((weight[some] * (runs[some] @ index) / held[some]).sum())


def fill(idle: float, gangs: Floats, left_s: Floats, waiting: Sequence[int]) -> list[int]:
    """Jobs for idle GPUs: the longest predicted remainder first, if its gang fits."""
    chosen = []
    for job in sorted(waiting, key=lambda j: -left_s[j]):
        if gangs[job] <= idle + EPS:
            chosen.append(job)
            idle -= gangs[job]
    return chosen
