"""The Gittins index over an empirical distribution of total service.

`G(a, D) = P(S - a <= D | S > a) / E[min(S - a, D) | S > a]`: the chance that a job which has
attained `a` ends within `D` more, over the service it is expected to use until then.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from weft.core.state.cells import Floats
from weft.pieces.order.doublings import step_below

# Median and spread of the GPU-times (seconds) published with the Tiresias simulator.
PRIOR_MEDIAN = 2227.0
PRIOR_SIGMA = 2.6


def gittins_index(samples: Floats, attained: Floats, quantum: Floats | float) -> Floats:
    """The index of jobs that attained `attained` for the service quantum; 0 beyond all samples."""
    s = np.sort(samples)
    prefix = np.concatenate([[0.0], np.cumsum(s)])
    a = np.asarray(attained, dtype=float)
    low = np.searchsorted(s, a, side="right")
    high = np.searchsorted(s, a + quantum, side="right")
    ending = high - low
    used = prefix[high] - prefix[low] - ending * a + (len(s) - high) * quantum
    index: Floats = np.divide(ending, used, out=np.zeros_like(a), where=used > 0.0)
    return index


def best_gittins_index(samples: Floats, attained: Floats) -> Floats:
    """The supremum of the index over all quanta that end at a sample.

    It is very high just before each sample: where it decides which jobs run, jobs take turns that
    nothing but the choice of samples explains. `coarse_gittins_index` is for that.
    """
    s = np.unique(samples)
    a = np.asarray(attained, dtype=float)
    quanta = s[None, :] - a[:, None]
    index = gittins_index(samples, np.repeat(a, len(s)), np.maximum(quanta, 0.0).ravel())
    best: Floats = np.where(quanta > 0.0, index.reshape(quanta.shape), 0.0).max(axis=1, initial=0.0)
    return best


def coarse_gittins_index(samples: Floats, attained: Floats, least: Floats | float = 60.0) -> Floats:
    """The same in doublings of service: it changes when a job has attained `least`, twice that...

    Quanta are as long as the next doubling at least, so that no single sample decides.
    """
    a = np.asarray(attained, dtype=float)
    level, first = step_below(a, least), np.broadcast_to(np.asarray(least, dtype=float), a.shape)
    levels, where = np.unique(np.stack([level, first]), axis=1, return_inverse=True)
    shortest = levels.max(axis=0)[:, None]
    quanta = np.maximum(np.unique(samples)[None, :] - levels[0][:, None], shortest)
    index = gittins_index(samples, np.repeat(levels[0], quanta.shape[1]), quanta.ravel())
    best: Floats = index.reshape(quanta.shape).max(axis=1, initial=0.0)[where]
    return best


def past_service(
    history: Floats,
    min_samples: int = 100,
    median: float = PRIOR_MEDIAN,
    sigma: float = PRIOR_SIGMA,
) -> Floats:
    """The distribution of total service: quantiles of the recent past, else a log-normal prior."""
    if len(history) < min_samples:
        z = np.array([NormalDist().inv_cdf((i + 0.5) / 64) for i in range(64)])
        return np.asarray(median * np.exp(sigma * z))
    recent = history[-4096:]
    return recent if len(recent) <= 256 else np.quantile(recent, (np.arange(256) + 0.5) / 256)
