"""Goodput of data-parallel training: throughput times statistical efficiency.

The model of Pollux (OSDI 2021), which Sia (SOSP 2023) keeps one of per GPU kind, on the seconds of
a step (`weft.base.step_times`). Everything broadcasts: parameters may be scalars or arrays over
jobs and configurations.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.base.step_times import TINY, StepTime
from weft.native import compiled

Floats = NDArray[np.float64]
CANDIDATES = 50
STEPS: Floats = np.linspace(0.0, 1.0, CANDIDATES)
KEPT = 1024  # answers of the candidates of one allocation
CHUNK = 256  # cases at a time: their candidates stay in the cache


class Noise(NamedTuple):
    """Gradient statistics at the scale of the initial batch size, and that batch size."""

    sqr: Any
    var: Any
    init: Any

    def gain(self, batch: Any) -> Any:
        """Return how many iterations of the initial size one of `batch` samples is worth."""
        scale = batch / self.init
        below = self.var / scale + self.sqr
        if isinstance(below, float):
            return (self.var + self.sqr) / below if below > 0.0 else 1.0
        return np.where(below > 0.0, (self.var + self.sqr) / np.where(below > 0, below, 1.0), 1.0)

    def efficiency(self, batch: Any) -> Any:
        """Worth of a sample at `batch` against one at the initial batch size."""
        return self.gain(batch) * self.init / batch


class BatchBounds(NamedTuple):
    """Largest global batch, and bounds of the batch on one GPU."""

    max_batch: Any
    min_local: Any
    max_local: Any


class BatchChoice(NamedTuple):
    """The best batch for an allocation: its goodput, samples per GPU, steps of an update."""

    goodput: Any
    local: Any
    accumulate: Any


class Candidates(NamedTuple):
    """Batches worth looking at, a row a case: samples per GPU, whether allowed.

    `extra` is the paper's s: steps of an update before the one that synchronises.
    """

    local: Floats
    extra: Floats
    allowed: NDArray[np.bool_]


def best_batch(
    times: StepTime, noise: Noise, nodes: Any, replicas: Any, limits: BatchBounds
) -> BatchChoice:
    """The batch size with the highest goodput, among 50 from the initial to the largest.

    Arguments broadcast to one shape of cases. A case in which no candidate respects the bounds
    has goodput 0.
    """
    if isinstance(replicas, (int, float)) and isinstance(times.gamma, float):
        return _best_of_one(times, noise, float(nodes), float(replicas), limits)
    shape = np.broadcast(nodes, replicas, *times, *noise, *limits).shape
    flat = [
        np.broadcast_to(np.asarray(v, dtype=float), shape).ravel()
        for v in (*times, *noise, nodes, replicas, *limits)
    ]
    looked_at = _spread(
        flat[11][:, None], flat[9][:, None], BatchBounds(*(v[:, None] for v in flat[12:]))
    )
    best = best_of(StepTime(*flat[:7]), Noise(*flat[7:10]), flat[10], flat[11], looked_at)
    return BatchChoice(*(v.reshape(shape) for v in best))


def best_of(
    times: StepTime, noise: Noise, nodes: Floats, replicas: Floats, looked_at: Candidates
) -> BatchChoice:
    """The best candidate of each case."""
    flat = (*times, *noise, nodes, replicas)
    chosen = np.empty((3, len(replicas)))
    for at in range(0, len(replicas), CHUNK):
        part = slice(at, at + CHUNK)
        c = [v[part, None] for v in flat]
        m, s = looked_at.local[part], looked_at.extra[part]
        value = _goodput(StepTime(*c[:7]), Noise(*c[7:10]), c[10], c[11], m, s)
        value *= looked_at.allowed[part]
        best = value.argmax(axis=1)
        rows = np.arange(len(best))
        chosen[:, part] = value[rows, best], m[rows, best], s[rows, best] + 1.0
    return BatchChoice(*chosen)


class SyncCases(NamedTuple):
    """Synchronisation by case, a row each: alone, over several nodes or in one, and how many more.

    `more` is what the slope of a synchronisation is multiplied by.
    """

    alone: NDArray[np.bool_]
    apart: NDArray[np.bool_]
    more: Floats

    @classmethod
    def of(cls, nodes: Floats, replicas: Floats) -> SyncCases:
        apart, more = nodes > 1, np.maximum(replicas - 2.0, TINY)
        return cls((replicas <= 1)[:, None], apart[:, None], more[:, None])


def step_seconds(times: Floats, waits: SyncCases, looked_at: Candidates) -> Floats:
    """Seconds an iteration of every candidate, by the seven parameters of each row.

    Infinite where a candidate is not allowed. The same as `_iteration`, with few arrays on the way.
    """
    took = np.empty(looked_at.local.shape)
    for at in range(0, len(times), CHUNK):
        part = slice(at, at + CHUNK)
        alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, g = times[part].T[:, :, None]
        alone, apart, more = (column[part] for column in waits)
        sync = np.where(apart, alpha_n + beta_n * more, alpha_r + beta_r * more)
        np.copyto(sync, TINY, where=alone)
        grad, step = beta_c * looked_at.local[part], took[part]
        grad += alpha_c
        np.log(grad, out=step)
        step *= g
        np.exp(step, out=step)
        step += sync**g
        np.log(step, out=step)
        step /= g
        np.exp(step, out=step)
        grad *= looked_at.extra[part]
        step += grad
    if not looked_at.allowed.all():
        took[~looked_at.allowed] = np.inf
    return took


@lru_cache(maxsize=4096)
def candidates(
    replicas: tuple[float, ...], init: float, limits: BatchBounds, fixed: float = 0.0
) -> Candidates:
    """The candidates for numbers of replicas; the same for every job with these limits.

    With `fixed` there is only that one batch size to look at.
    """
    k = np.array(replicas)[:, None]
    if not fixed:
        return _spread(k, init, limits)
    local = np.repeat(fixed / k, CANDIDATES, axis=1)
    s = np.ceil(local / limits.max_local - TINY) - 1.0
    np.maximum(s, 1.0, out=s, where=(k == 1.0) & (local > init + TINY))
    m = np.ceil(local / (s + 1.0) - TINY)
    return Candidates(m, s, (m >= 1.0) & (m <= limits.max_local))


def _spread(k: Floats, init: Any, limits: BatchBounds) -> Candidates:
    """Fifty batch sizes, evenly spaced on a logarithmic scale, split over GPUs and steps."""
    low = np.maximum(init, limits.min_local * k)
    span = np.log(np.maximum(limits.max_batch, low) / low)
    local = np.exp(span * STEPS) * (low / k)
    s = np.ceil(local / limits.max_local - TINY) - 1.0
    # One replica without accumulation gives no estimate of the noise.
    alone = (k == 1.0) & (local > init + TINY)
    np.maximum(s, 1.0, out=s, where=alone)
    m = np.ceil(local / (s + 1.0) - TINY)
    allowed = (m >= limits.min_local) & (m <= limits.max_local) & (low <= limits.max_batch)
    return Candidates(m, s, allowed)


def _best_of_one(
    times: StepTime, noise: Noise, nodes: float, k: float, limits: BatchBounds
) -> BatchChoice:
    """A single case, without the cost of broadcasting: only noise is new from epoch to epoch."""
    return trials(times, nodes, k, noise.init, limits).best((noise.sqr, noise.var))


class Trials:
    """The candidates of one allocation: the best of them depends on noise alone.

    The rows of `table` are global batches, seconds an iteration (infinite where not allowed),
    samples per GPU and steps of an update. Jobs of equal state share them, and with them the
    answers.
    """

    __slots__ = ("_best", "init", "table")

    def __init__(self, init: float, table: Floats) -> None:
        self.init, self.table = init, table
        self._best: dict[tuple[float, float], BatchChoice] = {}

    def best(self, noise: tuple[float, float]) -> BatchChoice:
        """The one with the highest goodput, for the squared norm and variance of gradients."""
        choice = self._best.get(noise)
        if choice is None:
            if len(self._best) >= KEPT:
                self._best.clear()
            choice = self._best[noise] = BatchChoice(*_best_trial(self.table, self.init, *noise))
        return choice


@compiled
def _best_trial(table: Floats, init: float, sqr: float, var: float) -> tuple[float, float, float]:
    """Goodput, samples per GPU and steps of an update of the best of the trials in a table."""
    batch, took, local, accumulate = table
    with np.errstate(all="ignore"):
        below = (var * init / batch + sqr) * took
        best = below.argmin()
        goodput = init * (var + sqr) / below[best]
    return float(goodput), float(local[best]), float(accumulate[best])


@lru_cache(maxsize=4096)
def trials(
    times: StepTime, nodes: float, k: float, init: float, limits: BatchBounds, fixed: float = 0.0
) -> Trials:
    """The candidates of an allocation with these step times."""
    looked_at = candidates((k,), float(init), BatchBounds(*map(float, limits)), fixed)
    m, s, allowed = (part[0] for part in looked_at)
    took = np.where(allowed, _iteration(times, nodes, k, m, s), np.inf)
    return Trials(init, np.array((k * m * (s + 1.0), took, m, s + 1.0)))


def _goodput(times: StepTime, noise: Noise, nodes: Any, k: Any, m: Floats, s: Floats) -> Floats:
    """Throughput times efficiency, with few passes over the candidates."""
    batch = k * m * (s + 1.0)
    below = noise.var * noise.init / batch + noise.sqr
    # gain / scale * throughput, with the batch sizes cancelled.
    took = _iteration(times, nodes, k, m, s)
    return np.asarray(noise.init * (noise.var + noise.sqr) / (below * took))


def _iteration(times: StepTime, nodes: Any, k: Any, m: Floats, s: Floats) -> Floats:
    g = times.gamma
    grad = times.alpha_c + times.beta_c * m
    sync = times.sync(nodes, k)
    step = np.exp(np.log(np.exp(g * np.log(grad)) + sync**g) / g)
    step += s * grad
    return np.asarray(step)
