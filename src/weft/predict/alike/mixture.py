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

from weft.core.state.table import Floats

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


def prior(attained: float) -> Sample:
    """What is thought of a job that nobody is like: log-normal at first, then "as long again"."""
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
        if last is None and n > 0.0 and not any(one.any() for one in alive[i + 1 :]):
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


def mix_ages(levels: Sequence[Sample], ages: Floats, k: float) -> tuple[Sample, Floats]:
    """`mix` with the prior once a job has executed for so long: ages x lengths in order.

    Each level's part is ages x levels.
    """
    a = ages[:, None]
    last = np.where(a > 0.0, a + np.maximum(a, PARETO_LEAST_S) * PARETO, LOG_NORMAL)
    parts, left = np.zeros((len(ages), len(levels))), np.ones((len(ages), 1))
    there = [i for i, sample in enumerate(levels) if len(sample.x)]
    x, w = np.zeros((len(ages), 0)), np.zeros((len(ages), 0))
    if there:
        sizes = [len(levels[i].x) for i in there]
        starts = np.cumsum([0, *sizes[:-1]])
        x = np.concatenate([levels[i].x for i in there])
        w = np.where(x > a, np.concatenate([levels[i].w for i in there]), 0.0)
        total = np.add.reduceat(w, starts, axis=1)
        n = total * total / np.maximum(np.add.reduceat(w * w, starts, axis=1), 1e-300)
        share = np.where(n > 0.0, n / np.maximum(n + k, EPS), 0.0)
        rest = np.cumprod(np.concatenate([left, 1.0 - share], axis=1), axis=1)
        parts[:, there] = own = share * rest[:, :-1]
        w = w * np.repeat(own / np.where(total > 0.0, total, 1.0), sizes, axis=1)
        x, left = np.broadcast_to(x, w.shape), rest[:, -1:]
    x = np.concatenate([x, last], axis=1)
    w = np.concatenate([w, np.broadcast_to(left / last.shape[1], last.shape)], axis=1)
    order = np.argsort(x, axis=1, kind="stable")
    return Sample(np.take_along_axis(x, order, 1), np.take_along_axis(w, order, 1)), parts


def quantiles_of_ages(sample: Sample, p: Floats) -> Floats:
    """Of `mix_ages`, ages x p: the smallest x whose cumulative weight is at least that part."""
    total = np.cumsum(sample.w, axis=1)
    wanted = p * total[:, -1:] * (1.0 - EPS)
    at = (total[:, None, :] < wanted[:, :, None]).sum(axis=2)
    return np.take_along_axis(sample.x, np.minimum(at, sample.x.shape[1] - 1), 1)


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


def kaplan_meier(lengths: Floats, running: Floats) -> Sample:
    """Lengths with the weights that they have beside jobs that still run.

    Each running job's weight goes to those that lasted longer; what nobody outlasted stays with the
    longest end, so that the weights sum to 1.
    """
    x = np.unique(lengths)
    at_risk = np.array([(lengths >= one).sum() + (running >= one).sum() for one in x], dtype=float)
    ends = np.array([(lengths == one).sum() for one in x], dtype=float)
    alive = np.cumprod(1.0 - ends / at_risk)
    w = np.concatenate([[1.0], alive[:-1]]) - alive
    w[-1] += alive[-1]
    return Sample(x, w)
