"""GPU time that jobs and tenants deserved and used so far: the policy's memory.

Rates of the time since the last decision are those that it left behind, so that a job that ended
in between is counted until now, as a scheduler that looks at intervals sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen

HOUR = 3600.0


@frozen
class Rate:
    """GPUs of a tenant: in use, deserved, of its quota. Times seconds: GPU time."""

    used: float = 0.0
    deserved: float = 0.0
    quota: float = 0.0

    def plus(self, other: Rate, seconds: float) -> Rate:
        """Return this rate with that many seconds of another added."""
        return Rate(
            self.used + seconds * other.used,
            self.deserved + seconds * other.deserved,
            self.quota + seconds * other.quota,
        )


Hours = Mapping[int, Mapping[str, Rate]]
Lengths = Mapping[float, Mapping[int, int]]


@dataclass(frozen=True, eq=False)
class AccountRows:
    """Columns of the jobs of a decision, by order of submission.

    `deserved` is GPU time, `rate` by how much it grows; `lost` are seconds that ran for nothing,
    `leased` is what a job had run when its lease began, `parked` when it last began to wait.
    """

    seq: Floats
    gpus: Floats
    ran: Floats
    running: Bools
    deserved: Floats
    rate: Floats
    lost: Floats
    leased: Floats
    parked: Floats
    renewed: Bools

    @property
    def executed(self) -> Floats:
        """Seconds of each job that were not for nothing."""
        return self.ran - self.lost

    def fairness_of(self, executed: Floats) -> Floats:
        """GPU time used over GPU time deserved; 0 where nothing is deserved yet."""
        ratio: Floats = self.gpus * executed / np.maximum(self.deserved, 1e-9)
        return np.where(self.deserved > 0.0, ratio, 0.0)

    @property
    def ltgf(self) -> Floats:
        """The long-term fairness of each job."""
        return self.fairness_of(self.executed)


NONE, NOBODY = np.zeros(0), np.zeros(0, dtype=bool)
NO_ROWS = AccountRows(NONE, NONE, NONE, NOBODY, NONE, NONE, NONE, NONE, NONE, NOBODY)


@frozen
class AstraeaMemory:
    """The memory: rows at the last decision, rates of tenants since, their hours, ended jobs.

    `due` is when the next decision was asked for.
    """

    at: float
    due: float = np.inf
    rows: AccountRows = NO_ROWS
    rates: Mapping[str, Rate] = field(default_factory=dict)
    hours: Hours = field(default_factory=dict)
    lengths: Lengths = field(default_factory=dict)


def advance(
    kept: AstraeaMemory, view: View, lease: float | None, check: float = 0.0
) -> AccountRows:
    """The rows of now, with what they deserved since the last decision.

    Leases that ended while no job waited were renewed at once; none were if `lease` is None, nor
    those that ended since the last `check`: real jobs do not start in the instant of the decision.
    """
    table, old, n = view.table, kept.rows, len(view.table)
    at = np.minimum(np.searchsorted(old.seq, table.seq), max(len(old.seq) - 1, 0))
    known = old.seq[at] == table.seq if len(old.seq) else np.zeros(n, dtype=bool)
    place = at[known]

    def carry(column: Floats, fresh: Floats) -> Floats:
        out = fresh.copy()
        out[known] = column[place]
        return out

    running, ran, zero = view.running(), view.ran(), np.zeros(n)
    passed = view.now - kept.at
    parked = carry(old.parked, table.submitted)
    interrupted = carry(old.running.astype(float), zero).astype(bool) & ~running
    parked[interrupted] = view.now
    leased = carry(old.leased, ran)
    missed = np.zeros(n)
    if lease is not None:
        missed = np.where(
            running, np.floor(np.maximum(ran - leased - check - 1e-6, 0.0) / lease), 0.0
        )
    return AccountRows(
        table.seq.copy(),
        table.column(TableColumns.NEED).copy(),
        ran,
        running,
        carry(old.deserved + old.rate * passed, zero),
        zero,
        carry(old.lost, zero),
        leased + missed * (lease or 0.0),
        parked,
        carry(old.renewed.astype(float), zero).astype(bool) | (missed > 0.0),
    )


def count_hours(kept: AstraeaMemory, now: float, keep: int, *, ahead: float = 0.0) -> Hours:
    """Hours of tenants until now; those more than `keep` back are dropped.

    An hour is closed `ahead` seconds before its end: what is seen at its end is of the next.
    """
    hours = {hour: dict(rates) for hour, rates in kept.hours.items()}
    begin, until = max(kept.at, now - (keep + 1) * HOUR) + ahead, now + ahead
    parts = []
    while begin < until - 1e-9:
        hour = int(begin // HOUR + 1e-12)
        end = min(until, (hour + 1) * HOUR)
        parts.append((hour, end - begin))
        begin = end
    for hour, seconds in parts:
        into = hours.setdefault(hour, {})
        for tenant, rate in kept.rates.items():
            into[tenant] = into.get(tenant, Rate()).plus(rate, seconds)
    first = int(now // HOUR) - keep
    return {hour: rates for hour, rates in hours.items() if hour >= first}


def sum_hours(hours: Hours, tenant: str, before: int) -> Rate:
    """All hours of a tenant before a certain one."""
    total = Rate()
    for hour, rates in hours.items():
        if hour < before and tenant in rates:
            total = total.plus(rates[tenant], 1.0)
    return total


def count_lengths(kept: AstraeaMemory, view: View, lease: float) -> Lengths:
    """Histograms of how many leases jobs took, by GPUs, with those that left since."""
    gone = ~np.isin(kept.rows.seq, view.table.seq)
    if not gone.any():
        return kept.lengths
    lengths = {gpus: dict(counts) for gpus, counts in kept.lengths.items()}
    rows = kept.rows
    for i in np.flatnonzero(gone).tolist():
        ran = float(rows.executed[i]) + (view.now - kept.at) * bool(rows.running[i])
        bins = lengths.setdefault(float(rows.gpus[i]), {})
        bin_ = int(ran // lease)
        bins[bin_] = bins.get(bin_, 0) + 1
    return lengths
