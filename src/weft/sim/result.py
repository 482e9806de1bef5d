"""What a simulation returns: one object for tables, JSON, reports and Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core.table import Floats

Timing = dict[str, float | None]
TIMINGS = ("p50", "p95", "max")


@dataclass(frozen=True, slots=True)
class PerJob:
    """One row a job, in order of submission; times in seconds, NaN where it never happened."""

    id: tuple[str, ...]
    submit_s: Floats
    start_s: Floats
    end_s: Floats
    restarts: Floats
    gpu_s: Floats
    gpus: Floats

    @property
    def jct_s(self) -> Floats:
        """Completion times of the jobs that finished."""
        jct = self.end_s - self.submit_s
        return jct[~np.isnan(jct)]


@dataclass(frozen=True, slots=True)
class Series:
    """The cluster over time, at evenly spaced instants: jobs waiting, GPUs in use."""

    time_s: Floats
    waiting: Floats
    used: Floats


@dataclass(frozen=True, slots=True)
class Bar:
    """One job on one GPU for a while."""

    node: str
    gpu: int
    job: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one policy did, the metrics by the names of the result contract."""

    policy: str
    predictor: str
    metrics: Mapping[str, float]
    decide_ms: Timing
    wall_s: float | None
    per_job: PerJob
    series: Series
    timeline: tuple[Bar, ...] = ()

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
            known["per_job"] = list(self._rows())
        return known

    def _rows(self) -> Iterator[dict[str, Any]]:
        p = self.per_job
        columns = (p.submit_s, p.start_s, p.end_s, p.restarts, p.gpu_s)
        for name, *values in zip(p.id, *(c.tolist() for c in columns), strict=True):
            submit, start, end, restarts, gpu_s = values
            yield {
                "id": name,
                "submit_s": _tidy(submit),
                "start_s": _tidy(start),
                "end_s": _tidy(end),
                "restarts": int(restarts),
                "gpu_s": _tidy(gpu_s),
            }


@dataclass(frozen=True, slots=True, repr=False)
class Result(Mapping[str, Any]):
    """Outcomes of policies on one workload and cluster; reads like the JSON object it prints.

    `outcomes[policy]` holds one outcome a seed.
    """

    weft: str
    workload: str
    cluster: str
    seeds: tuple[int, ...]
    outcomes: Mapping[str, tuple[Outcome, ...]]
    facts: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self, *, per_job: bool = False, timing: bool = True) -> dict[str, Any]:
        """The contract's object."""
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


def _over_seeds(outcomes: tuple[Outcome, ...], *, per_job: bool, timing: bool) -> dict[str, Any]:
    """One seed as it is; several as their means, with each beside them under `by_seed`."""
    each = [o.as_dict(per_job=per_job, timing=timing) for o in outcomes]
    if len(each) == 1:
        return each[0]
    means: dict[str, Any] = {
        k: _tidy(float(np.mean([e[k] for e in each]))) for k in outcomes[0].metrics
    }
    means["decide_ms"] = {k: _mean_or_none([e["decide_ms"][k] for e in each]) for k in TIMINGS}
    means["wall_s"] = _mean_or_none([e["wall_s"] for e in each])
    return {**means, "predictor": each[0]["predictor"], "by_seed": each}


def _mean_or_none(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _tidy(float(np.mean(known))) if known else None


def _tidy(value: float) -> float | int | None:
    """NaN and infinity as null, floats to nine digits."""
    if isinstance(value, int):
        return value
    return float(f"{value:.9g}") if np.isfinite(value) else None
