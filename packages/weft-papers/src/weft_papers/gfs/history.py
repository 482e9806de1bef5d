"""Memory of the wrapper: GPUs in use hour by hour, spot runs, promises kept and broken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import field, replace
from math import inf

from weft.core.model.job import Allocation, JobId, NodeId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.stack.wrapper import WrapperMemory
from weft_papers.gfs.quota import HOUR_S, KEPT_H, Forecaster, add_forecasts, free_gpus
from weft_papers.gfs.victims import NO_HOURS, PromiseRecord

DAY_S = 86_400.0
Who = str  # `tenant@kind`


@frozen
class SpotRun:
    """A spot job that runs: since when, and how many whole hours of it have been counted."""

    kind: str
    nodes: tuple[NodeId, ...]
    since: float
    counted: int = 0


@frozen
class PromisedHour:
    """An hour of a spot job that ended, whole or broken by others."""

    at: float
    kind: str
    nodes: tuple[NodeId, ...]
    kept: bool


@frozen
class GfsMemory(WrapperMemory):
    """Usage by hour, runs, the hours of the last day, totals, and the factor of each kind.

    `usage` is the most GPUs that guaranteed jobs held in an hour, by kind and tenant; `level` what
    they hold now. `since` is when each factor last changed, `quota` what spot jobs may hold of each
    kind, as it was at `looked`.
    """

    usage: Mapping[int, Mapping[Who, float]] = field(default_factory=dict)
    level: Mapping[Who, float] = field(default_factory=dict)
    runs: Mapping[JobId, SpotRun] = field(default_factory=dict)
    hours: tuple[PromisedHour, ...] = ()
    total: PromiseRecord = NO_HOURS
    eta: Mapping[str, float] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    quota: Mapping[str, float] = field(default_factory=dict)
    looked: float = -inf

    def free_in(
        self, hours: int, kind: str, view: View, forecaster: Forecaster, quantile: float
    ) -> list[int]:
        """GPUs of a kind that are free as promised, in this hour and those after it."""
        tenants = {who for levels in self.usage.values() for who in levels if _of(who, kind)}
        now = sum(gpus for who, gpus in self.level.items() if _of(who, kind))
        past = {
            who: {hour: used.get(who, 0.0) for hour, used in self.usage.items()} for who in tenants
        }
        this, capacity = int(view.now // HOUR_S), view.cluster.gpus_by_kind[kind]
        return [
            free_gpus(
                capacity,
                add_forecasts(
                    forecaster.forecast_hour(past[who], this + ahead) for who in sorted(tenants)
                ),
                quantile,
                now,
            )
            for ahead in range(1, hours + 1)
        ]

    def evictions(self, node: NodeId, since: float) -> int:
        """Spot jobs that gave way on a node since then."""
        return sum(not hour.kept and hour.at > since and node in hour.nodes for hour in self.hours)

    def numbers(self) -> dict[str, float]:
        """The quota of now, and how well promises were kept; nothing before there was any."""
        if not self.quota:
            return {}
        kept, broken = float(self.total.kept), float(self.total.broken)
        quota = sum(self.quota.values())
        return {"spot_quota": quota, "promised_hours_kept": kept, "promised_hours_broken": broken}

    def spot_runs_by_node(self) -> dict[NodeId, int]:
        """Return the number of spot runs on each node."""
        return Counter(node for run in self.runs.values() for node in run.nodes)

    def record(self, kind: str, since: float) -> PromiseRecord:
        """Hours of spot jobs on a kind that ended since then."""
        kept = [hour.kept for hour in self.hours if hour.kind == kind and hour.at > since]
        return PromiseRecord(kept.count(False), kept.count(True))

    def with_decision(self, view: View, plan: Plan, evicted: set[JobId]) -> GfsMemory:
        """The memory after a decision was carried out."""
        after = view.after(plan)
        runs, fresh = self._follow(view, after, evicted)
        usage, level = self._use(view, after)
        hours = tuple(hour for hour in self.hours if hour.at > view.now - DAY_S) + fresh
        kept = sum(hour.kept for hour in fresh)
        total = PromiseRecord(self.total.broken + len(fresh) - kept, self.total.kept + kept)
        return replace(self, usage=usage, level=level, runs=runs, hours=hours, total=total)

    def _follow(
        self, view: View, after: Mapping[JobId, Allocation], evicted: set[JobId]
    ) -> tuple[dict[JobId, SpotRun], tuple[PromisedHour, ...]]:
        runs: dict[JobId, SpotRun] = {}
        fresh: list[PromisedHour] = []
        for job, run in self.runs.items():
            whole = int((view.now - run.since) // HOUR_S)
            kept = max(whole - run.counted, 0)
            hidden = any(job in part.table for part in view.out_of_sight)
            ended = job not in view.table and not hidden
            fresh += [PromisedHour(view.now, run.kind, run.nodes, kept=True)] * (kept + ended)
            if job in evicted:
                fresh.append(PromisedHour(view.now, run.kind, run.nodes, kept=False))
            elif job in after or hidden:  # a view of other jobs leaves it as it is
                runs[job] = replace(run, counted=max(whole, run.counted))
        for job, on in after.items():
            if job not in runs and view.job(view.table.row(job)).spot:
                nodes = tuple(part.node for part in on.slices)
                runs[job] = SpotRun(view.cluster.kind_of(on), nodes, view.now)
        return runs, tuple(fresh)

    def _use(
        self, view: View, after: Mapping[JobId, Allocation]
    ) -> tuple[dict[int, Mapping[Who, float]], dict[Who, float]]:
        level: defaultdict[Who, float] = defaultdict(float)
        for job, on in after.items():
            held = view.job(view.table.row(job))
            if not held.spot:
                level[f"{held.tenant}@{view.cluster.kind_of(on)}"] += on.counted_gpus
        for held, kind, on in view.held_out_of_sight():
            if not held.spot:
                level[f"{held.tenant}@{kind}"] += on.counted_gpus
        this = int(view.now // HOUR_S)
        last = max(self.usage, default=this)
        usage = {hour: used for hour, used in self.usage.items() if hour > this - KEPT_H}
        usage |= dict.fromkeys(range(max(last + 1, this - KEPT_H + 1), this), self.level)
        before = usage.get(this, self.level if self.usage else {})
        who = {*before, *level}
        usage[this] = {
            tenant: max(before.get(tenant, 0.0), level.get(tenant, 0.0)) for tenant in who
        }
        return usage, dict(level)


def _of(who: Who, kind: str) -> bool:
    return who.rpartition("@")[2] == kind
