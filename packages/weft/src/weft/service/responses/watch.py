"""What the API answers to a what-if while it is simulated, and in detail when it is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from weft.app.insight import never_starts
from weft.app.insight.present import Ahead
from weft.app.insight.what_if import Simulated, SimulatedBar
from weft.core.model.job import Job, JobId, name_of
from weft.frozen import frozen_by_name
from weft.report.tables import COLUMNS
from weft.service.responses.answers import Comparison, NeverStarts, Problem
from weft.service.responses.timeline import HeldSpan
from weft.service.responses.watch import Place

HOUR = 3600.0
POINTS = 300  # of a distribution
MOST_SPANS = 4_000


@frozen_by_name
class Progress:
    """The progress of one simulation, 0 to 1."""

    label: str
    part: float


@frozen_by_name
class MetricColumn:
    """A metric of `policies`: its name, its format, and whether higher or lower is better."""

    name: str
    heading: str
    unit: Literal["plain", "hours", "percent"]
    better: Literal["less", "more"]


@frozen_by_name
class Sides:
    """One side in detail: hours from submission to end and to start, sorted, of its jobs.

    `spans` say which job held which devices when, if the run is small enough to draw; times in
    seconds since `begun`.
    """

    jct_h: list[float]
    wait_h: list[float]
    begun: float = 0.0
    spans: list[HeldSpan] = field(default_factory=list)


@frozen_by_name
class WhatIfLine:
    """One line of the answer: progress, the result, or an error."""

    progress: Progress | None = None
    result: Comparison | None = None
    metrics: list[MetricColumn] = field(default_factory=list)
    sides: dict[str, Sides] = field(default_factory=dict)
    problem: Problem | None = None


def metric_columns() -> list[MetricColumn]:
    """The numbers that are compared, in the order of tables."""
    return [
        MetricColumn(
            name=metric.name, heading=metric.heading, unit=metric.unit, better=metric.better
        )
        for metric in COLUMNS
    ]


def tell_never(
    never: Mapping[str, Sequence[never_starts.NeverStarts]],
) -> dict[str, list[NeverStarts]]:
    """By side, as it is answered."""
    return {
        label: [
            NeverStarts(count=starts.count, because=starts.because, jobs=[*starts.jobs])
            for starts in some
        ]
        for label, some in never.items()
        if some
    }


def describe_runs(outcomes: Mapping[str, Simulated]) -> dict[str, Sides]:
    """Sides of a replayed past."""
    return {label: _run(outcome) for label, outcome in outcomes.items()}


def describe_forks(
    both: Mapping[str, Ahead], seen: Mapping[JobId, Job], now: float
) -> dict[str, Sides]:
    """Sides of a simulated future: from now, the median of each job, and one simulation's spans.

    Only jobs that are `seen` have names.
    """
    return {
        label: Sides(
            jct_h=_points(outlook.end.quantile(0.5) for outlook in ahead.outlook.values()),
            wait_h=_points(outlook.start.quantile(0.5) for outlook in ahead.outlook.values()),
            begun=now,
            spans=_spans(ahead.timeline, now, seen),
        )
        for label, ahead in both.items()
    }


def _run(outcome: Simulated) -> Sides:
    per_job = outcome.per_job
    begun = float(per_job.submit_s.min()) if len(per_job.submit_s) else 0.0
    return Sides(
        jct_h=_points((per_job.end_s - per_job.submit_s).tolist()),
        wait_h=_points((per_job.start_s - per_job.submit_s).tolist()),
        begun=begun,
        spans=_spans(outcome.timeline, begun, None),
    )


def _spans(
    bars: Iterable[SimulatedBar], begun: float, seen: Mapping[JobId, Job] | None
) -> list[HeldSpan]:
    """Bars as spans from `begun` on; without `seen` all are named, by their ids."""
    spans = []
    for bar in sorted(bars, key=lambda bar: bar.start_s)[:MOST_SPANS]:
        job = None if seen is None else seen.get(JobId(bar.job))
        known = seen is None or job is not None
        spans.append(
            HeldSpan(
                job=bar.job if known else "",
                name=name_of(job) if job is not None else bar.job if known else "",
                tenant="" if job is None else job.tenant,
                attempt=1,
                on=[Place(node=bar.node, gpus=[bar.gpu])],
                share=1.0,
                start=bar.start_s - begun,
                end=bar.end_s - begun,
                how="",
            )
        )
    return spans


def _points(seconds: Iterable[float | None]) -> list[float]:
    """Hours in order, at most that many, evenly chosen; what never happened is left out."""
    known = sorted(value / HOUR for value in seconds if value is not None and value == value)
    if len(known) <= POINTS:
        return known
    step = (len(known) - 1) / (POINTS - 1)
    return [known[round(i * step)] for i in range(POINTS)]
