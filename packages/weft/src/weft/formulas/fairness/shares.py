"""GPU time that each user received, against what they were entitled to, in windows of time.

The entitlement of a window is the weighted max-min division of its GPU time: each gets in
proportion to a weight, no tenant more than its jobs could have used, and what one leaves the others
divide.

Long-term GPU-time fairness (LTGF) is GPU time used over GPU time deserved, of jobs and tenants. As
Astraea (Ye et al., TPDS 2022) has it: a tenant deserves its quota, or what its jobs ask for where
that is less; a job deserves an equal part of its tenant's quota, or what it asks for. Below 0.95
sharing was a loss, above 1.05 a gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.state.cells import Floats
from weft.core.state.table import Rows


@dataclass(frozen=True)
class Stretches:
    """GPUs held over time: the row of the job, from when, until when, how many."""

    row: Rows
    start: Floats
    end: Floats
    gpus: Floats


@dataclass(frozen=True)
class Shares:
    """GPU-seconds of each user (rows) in each window (columns) between `edges`.

    `wanted` is what its jobs could have used, `entitled` its part of the cluster, `received`
    what its jobs held.
    """

    users: tuple[str, ...]
    weights: Floats
    edges: Floats
    wanted: Floats
    entitled: Floats
    received: Floats


def divide_time(
    owners: Sequence[str],
    submitted: Floats,
    ended: Floats,
    need: Floats,
    held: Stretches,
    gpus: float,
    edges: Floats,
    weights: Mapping[str, float] | None = None,
) -> Shares:
    """The shares of the owners of jobs, in order of their first job; a weight not named is 1.

    A job wants what it asked for from its submission to its end; one that never ended wants it
    until the last edge.
    """
    users = tuple(dict.fromkeys(owners))
    of = {user: i for i, user in enumerate(users)}
    who = np.array([of[owner] for owner in owners], dtype=np.intp)
    leaves = np.where(np.isnan(ended), edges[-1], ended)
    weighed = weights or {}
    weight = np.array([weighed.get(user, 1.0) for user in users])
    wanted = _sum_up(who, submitted, leaves, need, len(users), edges)
    received = _sum_up(who[held.row], held.start, held.end, held.gpus, len(users), edges)
    entitled = fill_windows(gpus * np.diff(edges), weight, wanted)
    return Shares(users, weight, edges, wanted, entitled, received)


def fill_windows(room: Floats, weights: Floats, demands: Floats) -> Floats:
    """Weighted max-min of each column of `demands` (rows: users) with the `room` of that column.

    In the order of demand over weight: those before some place are satisfied, the others get
    the same amount for each unit of weight.
    """
    if not len(weights):
        return demands.copy()
    ratio = demands / weights[:, None]
    order = np.argsort(ratio, axis=0, kind="stable")
    sorted_demand = np.take_along_axis(demands, order, axis=0)
    sorted_weight = weights[order]
    before = np.cumsum(sorted_demand, axis=0) - sorted_demand
    behind = np.cumsum(sorted_weight[::-1], axis=0)[::-1]
    level = (room[None, :] - before) / behind  # if all from here on were unsatisfied
    met = np.take_along_axis(ratio, order, axis=0) <= level + 1e-12
    # The first that cannot be met sets the level of all behind it; none: all are met.
    first = np.argmin(met, axis=0)
    some = ~met.all(axis=0)
    water = np.where(some, level[first, np.arange(level.shape[1])], np.inf)
    given: Floats = np.minimum(demands, np.maximum(water, 0.0) * weights[:, None])
    return given


def share_fairly(room: float, weights: Floats, demands: Floats) -> Floats:
    """Weighted max-min: no one gets more than they can use; what is left goes to the others."""
    given = np.zeros(len(weights))
    open_ = demands > 0.0
    while open_.any() and room > 0.0:
        level = room / weights[open_].sum()
        full = open_ & (demands <= level * weights + 1e-12)
        if not full.any():
            given[open_] = level * weights[open_]
            break
        given[full] = demands[full]
        room -= float(demands[full].sum())
        open_ &= ~full
    return given


def window_edges(begin: float, end: float, length: float, most: int) -> Floats:
    """Edges of windows from `begin` to `end`, of `length` seconds or a multiple: at most `most`."""
    span = max(end - begin, 1e-9)
    length *= max(1.0, np.ceil(span / (length * most)))
    windows = max(int(np.ceil(span / length - 1e-9)), 1)
    whole: Floats = np.asarray(begin + length * np.arange(windows + 1), dtype=np.float64)
    whole[-1] = begin + span
    return whole


def jain_index(values: Floats) -> float:
    """Jain's index: 1 where all are equal, 1/n where one of n has everything; 1 of nothing."""
    square = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * square) if square else 1.0


def received_by_entitlement(shares: Shares) -> Floats:
    """Each user's received time over its entitlement; users that wanted nothing out.

    Users may get more than their entitlement where others left GPUs idle that they had wanted.
    """
    due = shares.entitled.sum(axis=1)
    there = due > 1e-9
    ratio: Floats = shares.received.sum(axis=1)[there] / due[there]
    return ratio


def shortfall(shares: Shares) -> float:
    """The part of all entitlements that was not received in the window in which it was due."""
    due = float(shares.entitled.sum())
    missed = np.maximum(shares.entitled - shares.received, 0.0)
    return float(missed.sum()) / due if due > 1e-9 else 0.0


def envy_of(shares: Shares) -> Floats:
    """The part that each user would have more in another's place, at most: 0 none, 1 all of it.

    Another's place is what the other received in each window, scaled by the weights of the two
    and capped by what the user's own jobs could have used.
    """
    wanted, weights = shares.wanted, shares.weights
    own = np.minimum(shares.received, wanted).sum(axis=1)
    per_weight = shares.received / weights[:, None]
    envy = np.zeros(len(weights))
    for user, weight in enumerate(weights.tolist()):
        there = wanted[user] > 0.0
        others = np.minimum(per_weight[:, there] * weight, wanted[user, there])
        best = float(others.sum(axis=1).max(initial=0.0))
        envy[user] = max(1.0 - own[user] / best, 0.0) if best > 1e-9 else 0.0
    return envy


def _sum_up(
    who: Rows, start: Floats, end: Floats, gpus: Floats, users: int, edges: Floats
) -> Floats:
    """GPU-seconds of each user in each window.

    What a user holds jumps at starts and ends. It counts to the end of the window of the jump,
    and in every later window whole.
    """
    times = np.clip(np.concatenate([start, end]), edges[0], None)
    change, rows = np.concatenate([gpus, -gpus]), np.concatenate([who, who])
    inside = times < edges[-1]
    times, change, rows = times[inside], change[inside], rows[inside]
    windows = len(edges) - 1
    window = np.searchsorted(edges, times, side="right") - 1
    cell = rows * windows + window
    jumps = np.bincount(cell, change, users * windows).reshape(users, windows)
    first = np.bincount(cell, change * (edges[window + 1] - times), users * windows)
    before = np.cumsum(jumps, axis=1) - jumps
    total: Floats = np.maximum(before * np.diff(edges) + first.reshape(users, windows), 0.0)
    return total


# What users and tenants weigh against each other, from the weights that someone named.


def weigh_owners(
    owners: Iterable[tuple[str, str]], weights: Mapping[str, float]
) -> dict[str, float]:
    """The weight of each owner of jobs, given with its tenant, in order.

    A user that is named has its own; the others of a tenant that is named divide the tenant's
    equally; everyone else has 1.
    """
    tenant_of = dict(owners)
    sharing: dict[str, int] = {}
    for owner, tenant in tenant_of.items():
        if owner not in weights:
            sharing[tenant] = sharing.get(tenant, 0) + 1
    return {
        owner: weights[owner]
        if owner in weights
        else weights[tenant] / sharing[tenant]
        if tenant in weights
        else 1.0
        for owner, tenant in tenant_of.items()
    }


def check_weights(who: str, weights: Mapping[str, float]) -> None:
    """Raise InvalidConfig, in the name of `who`, unless every weight is above 0."""
    for name, weight in weights.items():
        if not 0.0 < weight < float("inf"):
            raise InvalidConfig(
                f"{who} gives {name!r} a weight of {weight:g}",
                hint="a weight is above 0; users and tenants that are not named have 1",
            )


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
    """Owner, arrival, end, GPUs and GPU time of each job."""

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
