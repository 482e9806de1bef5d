"""Distributions of total length, conditioned on what a job has already executed.

Each group of jobs that a job belongs to is a weighted sample of lengths. Samples that the job has
outlived are dropped, then the groups are blended from the narrowest to the widest: a group with few
survivors counts little (shrinkage), and what remains at the end goes to a prior. Shrinking after
conditioning matters: a group whose jobs all ended sooner says nothing of one that still runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from weft.core.state.cells import Floats

EPS = 1e-9
PRIOR_MEDIAN_S = 480.0
PRIOR_SIGMA = 2.3
PARETO_LEAST_S = 60.0
DECILES = np.arange(1, 10) / 10.0
LOG_NORMAL: Floats = PRIOR_MEDIAN_S * np.exp(
    PRIOR_SIGMA * np.array([NormalDist().inv_cdf(p) for p in DECILES.tolist()])
)
PARETO: Floats = DECILES / (1.0 - DECILES)


class Sample(NamedTuple):
    """Lengths with their weights."""

    x: Floats
    w: Floats


class Block(NamedTuple):
    """Lengths in order, with the sums of weights and of their squares up to each; 0 at first."""

    x: Floats
    w: Floats
    w2: Floats


def prior(attained: float) -> Sample:
    """The prediction for a job unlike any other: log-normal at first, then "as long again"."""
    totals = LOG_NORMAL if attained <= 0.0 else attained + max(attained, PARETO_LEAST_S) * PARETO
    return Sample(totals, np.full(len(totals), 1.0 / len(totals)))


@lru_cache(1024)
def decayed(count: int, half: float) -> Floats:
    """Weights of samples, the newest last: half after `half` further ones."""
    age: Floats = np.arange(count - 1, -1, -1, dtype=float)
    weights: Floats = 0.5 ** (age / half)
    weights.flags.writeable = False
    return weights


def effective(w: Floats) -> float:
    """Equally weighted samples that are worth as much."""
    total = float(w.sum())
    return total * total / float(np.dot(w, w)) if total > 0.0 else 0.0


def mix(
    levels: Sequence[Sample], attained: float, k: float, last: Sample | None = None
) -> tuple[Sample, list[float]]:
    """The blend of total lengths above `attained`, narrowest level first, and each level's part.

    `last` takes what no level claims; without it the widest level with survivors does.
    """
    left, parts, blended = 1.0, [], []
    alive = [(s.x > attained) for s in levels]
    for i, (sample, keep) in enumerate(zip(levels, alive, strict=True)):
        w = sample.w[keep]
        n = effective(w)
        share = n / (n + k) if n > 0.0 else 0.0
        if last is None and n > 0.0 and not any(level.any() for level in alive[i + 1 :]):
            share = 1.0
        parts.append(left * share)
        if n > 0.0:
            blended.append(Sample(sample.x[keep], w / w.sum() * left * share))
        left *= 1.0 - share
    if last is not None:
        blended.append(Sample(last.x, last.w * left))
    if not blended:
        return Sample(np.zeros(0), np.zeros(0)), parts
    return Sample(
        np.concatenate([s.x for s in blended]), np.concatenate([s.w for s in blended])
    ), parts


def mix_sorted(blocks: Sequence[Block], attained: float, k: float) -> tuple[Sample, list[float]]:
    """`mix` with the prior, of levels that are in order and summed up already."""
    left, parts, x, w = 1.0, [], [], []
    for block in blocks:
        at = int(block.x.searchsorted(attained, side="right"))
        part = 0.0
        if at < len(block.x):
            total = float(block.w[-1] - block.w[at - 1])
            n = total * total / max(float(block.w2[-1] - block.w2[at - 1]), 1e-300)
            part = left * n / (n + k)
            x.append(block.x[at:])
            w.append((block.w[at:] - block.w[at - 1 : -1]) * (part / total))
        parts.append(part)
        left -= part
    last = prior(attained)
    return Sample(np.concatenate([*x, last.x]), np.concatenate([*w, last.w * left])), parts


def quantile(sample: Sample, p: Sequence[float]) -> Floats:
    """For each p the smallest x whose cumulative weight is at least that part of all."""
    order = np.argsort(sample.x, kind="stable")
    total = np.cumsum(sample.w[order])
    wanted = np.asarray(p) * total[-1] * (1.0 - EPS)
    at = np.minimum(np.searchsorted(total, wanted, side="left"), len(order) - 1)
    return np.asarray(sample.x[order][at])


def mean(sample: Sample) -> float:
    """The weighted mean."""
    return float((sample.x * sample.w).sum() / sample.w.sum())
