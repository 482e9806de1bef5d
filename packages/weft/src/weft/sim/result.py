"""Results of a simulation: one object for tables, JSON, reports and Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import starmap
from typing import Any, overload

import numpy as np

from weft.core.errors import needs
from weft.core.state.cells import Floats
from weft.formulas.fairness.shares import Stretches
from weft.formulas.metrics import METRICS
from weft.formulas.statistics import mean_interval
from weft.frozen import frozen

Timing = dict[str, float | None]
NO_WAIT_H, LITTLE = 0.01, 0.01  # hours of waiting that are none, and the part of a job's time
TIMINGS = ("p50", "p95", "max")
NOTEBOOK = tuple(m.name for m in METRICS if m.heading and m.brief and "main" in m.tables)


@frozen
class PerJob:
    """One row per job, in order of submission; times in seconds, NaN where it never happened.

    `gpus` are those that it asked for, `kinds` the GPU models that it takes, empty for any. `ftf`
    and `static_ftf` are its finish-time fairness in two definitions. `held` is what jobs held
    when, as far as it was promised to them alone.
    """

    id: tuple[str, ...]
    submit_s: Floats
    start_s: Floats
    end_s: Floats
    restarts: Floats
    gpu_s: Floats
    gpus: Floats
    ftf: Floats
    static_ftf: Floats
    users: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    held: Stretches | None = None

    def facts(self) -> Iterator[dict[str, Any]]:
        """The request of each job, and its owner."""
        none = ("",) * len(self.id)
        columns = (self.users or none, self.models or none, self.kinds or none)
        for gpus, user, model, kind in zip(self.gpus.tolist(), *columns, strict=True):
            yield {"gpus": gpus, "user": user, "model": model, "kind": kind}

    @property
    def jct_s(self) -> Floats:
        """Completion times of the jobs that finished."""
        jct = self.end_s - self.submit_s
        return jct[~np.isnan(jct)]


@frozen
class ClusterSeries:
    """The cluster over time, at evenly spaced instants: jobs waiting, GPUs in use."""

    time_s: Floats
    waiting: Floats
    used: Floats


@frozen
class UserShare:
    """GPUs of one user over time, entitled to and received: means around each instant."""

    user: str
    weight: float
    time_s: Floats
    entitled: Floats
    received: Floats


@frozen
class TimelineBar:
    """One job on one GPU for a while."""

    node: str
    gpu: int
    job: str
    start_s: float
    end_s: float


@frozen
class TimelineBars(Sequence[TimelineBar]):
    """Bars by their columns: thousands travel from one process to another as five values."""

    node: tuple[str, ...] = ()
    gpu: tuple[int, ...] = ()
    job: tuple[str, ...] = ()
    start_s: tuple[float, ...] = ()
    end_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[tuple[str, int, str, float, float]]) -> TimelineBars:
        """Build the columns from the fields of each job."""
        return cls(*zip(*rows, strict=True))

    @overload
    def __getitem__(self, at: int) -> TimelineBar: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[TimelineBar, ...]: ...
    def __getitem__(self, at: int | slice) -> TimelineBar | tuple[TimelineBar, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        return TimelineBar(
            self.node[at], self.gpu[at], self.job[at], self.start_s[at], self.end_s[at]
        )

    def __iter__(self) -> Iterator[TimelineBar]:
        columns = (self.node, self.gpu, self.job, self.start_s, self.end_s)
        return starmap(TimelineBar, zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(self.node)


@frozen
class Outcome:
    """The results of one policy, the metrics by the names of the result contract."""

    policy: str
    predictor: str
    metrics: Mapping[str, float]
    decide_ms: Timing
    wall_s: float | None
    per_job: PerJob
    series: ClusterSeries
    timeline: TimelineBars = TimelineBars()
    shares: tuple[UserShare, ...] = ()

    def __getattr__(self, name: str) -> float:
        try:
            return self.metrics[name]
        except KeyError:
            raise AttributeError(name) from None

    def as_dict(self, *, per_job: bool = False, timing: bool = True) -> dict[str, Any]:
        """The contract's object; without `timing` nothing in it depends on the machine."""
        known: dict[str, Any] = {k: _tidy(v) for k, v in self.metrics.items()}
        known["decide_ms"] = self.decide_ms if timing else dict.fromkeys(self.decide_ms)
        known["wall_s"] = self.wall_s if timing else None
        known["predictor"] = self.predictor
        if per_job:
            rows = zip(self.job_rows(), _held_by(self.per_job), strict=True)
            known["per_job"] = [{**row, "held": held} for row, held in rows]
            if self.timeline:
                known["timeline"] = [_bar_row(bar) for bar in self.timeline]
        return known

    def job_rows(self) -> Iterator[dict[str, Any]]:
        """Return one row per job, in order of submission."""
        p = self.per_job
        columns = (p.submit_s, p.start_s, p.end_s, p.restarts, p.gpu_s, p.ftf, p.static_ftf)
        for name, *values in zip(p.id, *(c.tolist() for c in columns), strict=True):
            submit, start, end, restarts, gpu_s, ftf, static_ftf = values
            yield {
                "id": name,
                "submit_s": _tidy(submit),
                "start_s": _tidy(start),
                "end_s": _tidy(end),
                "restarts": int(restarts),
                "gpu_s": _tidy(gpu_s),
                "ftf": _tidy(ftf),
                "static_ftf": _tidy(static_ftf),
            }


Outcomes = Mapping[str, tuple[Outcome, ...]]  # by policy, one a seed


@dataclass(frozen=True, slots=True, repr=False)
class Result(Mapping[str, Any]):
    """Outcomes of policies on one workload and cluster; reads like the JSON object it prints.

    `outcomes[policy]` holds one outcome per seed. `bounds` are what no schedule can beat, by name
    and one per seed, where that was asked for; `no_bound` says why there are none.
    """

    weft: str
    workload: str
    cluster: str
    seeds: tuple[int, ...]
    outcomes: Outcomes
    facts: Mapping[str, float] = field(default_factory=dict)
    bounds: tuple[Mapping[str, float], ...] = ()
    no_bound: str = ""

    def as_dict(self, *, per_job: bool = False, timing: bool = True) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "weft": self.weft,
            "workload": self.workload,
            "cluster": self.cluster,
            "gpus": int(self.facts.get("gpus", 0)),
            "offered_load": _tidy(self.facts.get("offered_load", 0.0)),
            "seed": self.seeds[0],
        }
        if len(self.seeds) > 1:
            whole["seeds"] = list(self.seeds)
        if self.bounds:
            whole["bound"] = {name: _tidy(value) for name, value in self.least.items()}
        elif self.no_bound:
            whole["no_bound"] = self.no_bound
        whole["policies"] = {
            policy: _over_seeds(outcomes, per_job=per_job, timing=timing)
            for policy, outcomes in self.outcomes.items()
        }
        return whole

    def __repr__(self) -> str:
        return f"Result({self.workload!r} on {self.cluster!r}: {', '.join(self.outcomes)})"

    def __getitem__(self, key: str) -> Any:
        return self.as_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.as_dict())

    def mean(self, policy: str, metric: str) -> float:
        """A metric of a policy, averaged over seeds."""
        return float(np.mean([o.metrics[metric] for o in self.outcomes[policy]]))

    @property
    def least(self) -> dict[str, float]:
        """All bounds by name, averaged over seeds; empty if none were asked for."""
        return {name: self.bound(name) for name in next(iter(self.bounds), ())}

    def bound(self, name: str = "avg_jct_h") -> float:
        """A bound, averaged over seeds."""
        return self.bound_interval(name)[0]

    def bound_interval(self, name: str) -> tuple[float, float]:
        """A bound averaged over seeds, and half its 95 % interval; 0 for a single seed."""
        return mean_interval([each[name] for each in self.bounds])

    def interval(self, policy: str, metric: str) -> tuple[float, float]:
        """A metric averaged over seeds, and half its 95 % interval; 0 for a single seed."""
        return mean_interval([o.metrics[metric] for o in self.outcomes[policy]])

    @property
    def note(self) -> str:
        """A warning of what a reader could be misled by; mostly none."""
        load = self.facts.get("offered_load", 0.0)
        every = [o.metrics for some in self.outcomes.values() for o in some]
        if any(m["avg_queue_h"] > max(NO_WAIT_H, LITTLE * m["avg_jct_h"]) for m in every):
            return ""
        return (
            f"hardly a job waits, so policies cannot differ: the load of {load:.2f} is of the "
            "whole span of arrivals, and a few long jobs make up most of it; raise the load "
            "(--load) or take fewer GPUs (--cluster)"
        )

    def to_frame(self, *, per_job: bool = False) -> Any:
        """A tidy pandas DataFrame: one row per policy and seed, or per policy, seed and job.

        With `per_job` the columns are policy, seed, id, submit_s, start_s, end_s, restarts, gpu_s,
        ftf, static_ftf, gpus, user, model and kind; without, every metric of the result.
        """
        rows: list[dict[str, Any]] = []
        for policy, outcomes in self.outcomes.items():
            for seed, outcome in zip(self.seeds, outcomes, strict=True):
                label = {"policy": policy, "seed": seed}
                if per_job:
                    more = outcome.per_job.facts()
                    both = zip(outcome.job_rows(), more, strict=True)
                    rows += [{**label, **row, **facts} for row, facts in both]
                else:
                    rows.append({**label, "predictor": outcome.predictor, **outcome.metrics})
        return _pandas().DataFrame(rows)

    def _repr_html_(self) -> str:
        """A table of the main numbers, as notebooks show it."""
        head = "".join(f"<th>{name}</th>" for name in ("policy", *NOTEBOOK))
        body = "".join(
            f"<tr><td>{escape(policy)}</td>"
            + "".join(f"<td>{self.mean(policy, name):.4g}</td>" for name in NOTEBOOK)
            + "</tr>"
            for policy in self.outcomes
        )
        about = f"{self.workload} on {self.cluster}"
        if len(self.seeds) > 1:
            about += f", means of {len(self.seeds)} seeds"
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table><caption>{escape(about)}</caption><tr>{head}</tr>{body}</table>{note}"


def _over_seeds(outcomes: tuple[Outcome, ...], *, per_job: bool, timing: bool) -> dict[str, Any]:
    """One seed as it is; several as their means, with each beside them under `by_seed`."""
    each = [o.as_dict(per_job=per_job, timing=timing) for o in outcomes]
    if len(each) == 1:
        return each[0]
    means: dict[str, Any] = {
        k: _tidy(float(np.mean([e[k] for e in each]))) for k in outcomes[0].metrics
    }
    means["interval95"] = {
        k: _tidy(mean_interval([o.metrics[k] for o in outcomes])[1]) for k in outcomes[0].metrics
    }
    means["decide_ms"] = {k: _mean_or_none([e["decide_ms"][k] for e in each]) for k in TIMINGS}
    means["wall_s"] = _mean_or_none([e["wall_s"] for e in each])
    return {**means, "predictor": each[0]["predictor"], "by_seed": each}


def _held_by(jobs: PerJob) -> Iterator[list[list[float | int | None]]]:
    """From, until and GPUs of each stretch of time, job by job."""
    rows: list[list[list[float | int | None]]] = [[] for _ in jobs.id]
    if (held := jobs.held) is not None:
        columns = (held.start.tolist(), held.end.tolist(), held.gpus.tolist())
        for row, *stretch in zip(held.row.tolist(), *columns, strict=True):
            rows[row].append([_tidy(value) for value in stretch])
    return iter(rows)


def _pandas() -> Any:
    with needs("to_frame needs pandas, which is not installed", hint="pip install pandas"):
        import pandas as pd
    return pd


def _mean_or_none(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _tidy(float(np.mean(known))) if known else None


def _bar_row(bar: TimelineBar) -> dict[str, Any]:
    times = {"start_s": _tidy(bar.start_s), "end_s": _tidy(bar.end_s)}
    return {"job": bar.job, "node": bar.node, "gpu": bar.gpu, **times}


def _tidy(value: float) -> float | int | None:
    """NaN and infinity as null, floats to nine digits."""
    if isinstance(value, int):
        return value
    return float(f"{value:.9g}") if np.isfinite(value) else None
