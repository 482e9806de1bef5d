"""Statistics of runs: percentiles, contention, finish-time fairness."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

import numpy as np

from weft.core.state.cells import Floats

HOUR = 3600.0


def percentile(values: Floats, q: float) -> float:
    """The element at position int(q n) of the sorted values, as the Sia paper takes it."""
    if not len(values):
        return 0.0
    return float(np.sort(values)[min(int(q * len(values)), len(values) - 1)])


def mean(values: Floats) -> float:
    """The mean, 0 of nothing."""
    return float(values.mean()) if len(values) else 0.0


def least(values: Floats) -> float:
    """The smallest, 0 of nothing."""
    return float(values.min()) if len(values) else 0.0


def contention(submit: Floats, end: Floats) -> tuple[float, int]:
    """Unfinished jobs over the whole run: time average and maximum."""
    if not len(submit):
        return 0.0, 0
    span = float(end.max() - submit.min())
    average = float((end - submit).sum()) / span if span else float(len(submit))
    # At equal times jobs leave before others arrive, as in the simulator.
    times = np.concatenate([end, submit])
    change = np.concatenate([-np.ones(len(end)), np.ones(len(submit))])
    running = np.cumsum(change[np.argsort(times, kind="stable")])
    return average, int(running.max())


def contention_seen(submit: Floats, end: Floats) -> Floats:
    """Average number of unfinished jobs during each job's own stay, itself included."""
    stay = np.maximum(end - submit, 1e-9)
    seen = _alive_integral(submit, end, end) - _alive_integral(submit, end, submit)
    return np.maximum(seen / stay, 1.0)


def finish_time_fairness(
    submit: Floats, end: Floats, length: Floats, need: Floats, gpus: int
) -> Floats:
    """Completion time over what the job would take alone on an equal part of the cluster.

    The part is the cluster over the jobs that were there on average; a gang larger than its
    part takes proportionally longer there. Above 1 a job did worse than under equal division.
    """
    part = gpus / contention_seen(submit, end)
    alone = np.maximum(length, 1e-9) * np.maximum(need / part, 1.0)
    rho: Floats = (end - submit) / alone
    return rho


def static_finish_time_fairness(jct: Floats, length: Floats, jobs_per_gpu: float) -> Floats:
    """Completion time over the time alone, stretched by the jobs of the whole trace to a GPU.

    As Shockwave (Zheng et al., NSDI 2023) reports it: the size of a gang plays no part, and
    neither do the jobs that were there at the same time.
    """
    rho: Floats = jct / (np.maximum(length, 1e-9) * max(jobs_per_gpu, 1.0))
    return rho


def level(times: Floats, change: Floats, at: Floats) -> Floats:
    """The value at each of `at` of a quantity that starts at 0 and jumps at `times`."""
    order = np.argsort(times, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(change[order])])
    return total[np.searchsorted(times[order], at, side="right")]


def _alive_integral(submit: Floats, end: Floats, at: Floats) -> Floats:
    """Integral from the beginning to each of `at` of the number of unfinished jobs."""
    return _ramp(np.sort(submit), at) - _ramp(np.sort(end), at)


def _ramp(starts: Floats, at: Floats) -> Floats:
    """Sum over `starts` of the time passed since, for those before `at`."""
    count = np.searchsorted(starts, at, side="right")
    total = np.concatenate([[0.0], np.cumsum(starts)])
    ramp: Floats = count * at - total[count]
    return ramp


# Quantiles of Student's t at 97.5 %, by degrees of freedom; beyond, that of the normal law.
STUDENT = (
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31),
    *(2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13),
)
NORMAL = 1.96


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half its 95 % interval; of fewer than two values the half is 0."""
    if len(values) < 2:
        return (values[0] if values else 0.0), 0.0
    freedom = len(values) - 1
    quantile = STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL
    return fmean(values), quantile * stdev(values) / sqrt(len(values))


# ---- Differences of two policies seed by seed: what the same draws of chance leave to tell apart


def interval(own: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The mean difference and half its 95 % interval, from differences seed by seed.

    Of a single seed the half is 0: what is simulated once is what it is.
    """
    return mean_interval([a - b for a, b in zip(own, other, strict=False)])


def differs(own: Sequence[float], other: Sequence[float]) -> bool:
    """True if the interval leaves out 0."""
    middle, half = interval(own, other)
    return abs(middle) > half
