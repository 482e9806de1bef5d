"""Long-term GPU-time fairness (LTGF): GPU time used over GPU time deserved, of jobs and tenants.

As Astraea (Ye et al., TPDS 2022) has it: a tenant deserves its quota, or what its jobs ask for
where that is less; a job deserves an equal part of its tenant's quota, or what it asks for.
Below 0.95 sharing was a loss, above 1.05 a gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Rows

LOSS = 0.95


def quotas_of(
    tenants: Sequence[str], gpus: float, weights: Mapping[str, float] | None = None
) -> dict[str, float]:
    """GPUs of each tenant, in proportion to weights; 1 where none is named."""
    named = weights or {}
    known = list(dict.fromkeys(tenants))
    total = sum(named.get(tenant, 1.0) for tenant in known)
    return {tenant: gpus * named.get(tenant, 1.0) / total for tenant in known}


class JobTimes(NamedTuple):
    """Of each job: whose it is, when it came and ended, GPUs it asked for, GPU time it used."""

    tenants: Sequence[str]
    submitted: Floats
    ended: Floats
    need: Floats
    used: Floats


def job_ratios(jobs: JobTimes, quotas: Mapping[str, float]) -> Floats:
    """LTGF of each job. NaN for jobs that never ended."""
    tenants, submitted, ended, need, used = jobs
    ratio = np.full(len(submitted), np.nan)
    for rows, quota in _by_tenant(tenants, quotas):
        done = rows[~np.isnan(ended[rows])]
        if not len(done):
            continue
        times, count = _steps(submitted[done], ended[done], np.ones(len(done)))
        for size in np.unique(need[done]):
            same = done[need[done] == size]
            level = np.minimum(size, quota / np.maximum(count, 1.0))
            due = _between(times, level, submitted[same], ended[same])
            ratio[same] = np.where(due > 1e-9, used[same] / np.maximum(due, 1e-9), 1.0)
    return ratio


def tenant_ratios(jobs: JobTimes, quotas: Mapping[str, float]) -> dict[str, float]:
    """LTGF of each tenant over its finished jobs; 1 for one that deserved nothing."""
    tenants, submitted, ended, need, used = jobs
    ratios: dict[str, float] = {}
    for (rows, quota), tenant in zip(_by_tenant(tenants, quotas), quotas, strict=True):
        done = rows[~np.isnan(ended[rows])]
        if not len(done):
            continue
        times, demand = _steps(submitted[done], ended[done], need[done])
        due = float((np.minimum(demand[:-1], quota) * np.diff(times)).sum())
        ratios[tenant] = float(used[done].sum()) / due if due > 1e-9 else 1.0
    return ratios


def _by_tenant(tenants: Sequence[str], quotas: Mapping[str, float]) -> list[tuple[Rows, float]]:
    names = np.array(tenants, dtype=object)
    return [(np.flatnonzero(names == tenant), quota) for tenant, quota in quotas.items()]


def _steps(start: Floats, end: Floats, height: Floats) -> tuple[Floats, Floats]:
    """Times at which a sum of intervals changes, and its value from each of them on."""
    times = np.concatenate([start, end])
    change = np.concatenate([height, -height])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(change[order])


def _between(times: Floats, level: Floats, start: Floats, end: Floats) -> Floats:
    """Integral of the steps from each `start` to each `end`, all of them among `times`."""
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    between: Floats = area[np.searchsorted(times, end)] - area[np.searchsorted(times, start)]
    return between
