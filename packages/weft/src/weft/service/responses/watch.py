"""Answers about change: as it happens, as it was, and as it would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from weft.app.insight import never_starts
from weft.app.insight.present import QueueOutlook
from weft.app.insight.what_if import Simulated, SimulatedBar
from weft.core.model.job import Job, JobId, name_of
from weft.frozen import frozen_by_name
from weft.report.tables import COLUMNS
from weft.service.responses.answers import (
    Ahead,
    Comparison,
    NeverStarts,
    NodeAnswer,
    Part,
    Problem,
    Start,
)
from weft.service.responses.job_row import JobRow


@frozen_by_name
class GpusOnNode:
    """GPUs of one node that a job holds."""

    node: str
    gpus: list[int]


@frozen_by_name
class WatchedJob(JobRow):
    """One job in short; times in seconds since the epoch.

    `GET /jobs/ID` has more. `why` is the number of its reason in `reasons`, 0 for none. `on` is
    where it runs, is about to run, or has not left yet. `share` is its fraction of each device,
    `pace` its measured speed beside its neighbours relative to alone. It is `suspended` from the
    request until it is resumed. `arguments` are the first values of its sweep or of its command.
    """

    why: int
    pace: float | None
    share: float
    on: list[GpusOnNode]
    suspended: bool = False
    arguments: dict[str, str] = field(default_factory=dict)


@frozen_by_name
class ClusterPulse:
    """The cluster in a few numbers; `held` counts devices."""

    now: float
    speed: float
    policy: str
    engine: str
    trouble: str
    gpus: int
    held: float
    decisions: int
    seq: int


@frozen_by_name
class Watched:
    """A message: everything in a `snapshot`, the changes in an `update`.

    If there are many jobs, a snapshot holds those that have devices; the others follow at once as
    updates, and only the last of these has an `id`. `nodes` are those that changed. `reasons` are
    the changed texts by number; jobs refer to them.
    """

    cluster: ClusterPulse
    nodes: list[NodeAnswer] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    jobs: list[WatchedJob] = field(default_factory=list)


@frozen_by_name
class Waiting:
    """A waiting job: its place among all, and quantiles of the simulated seconds until it starts.

    A value is null if the simulations did not reach it.
    """

    id: str
    place: int | None
    p10: float | None
    p50: float | None
    p90: float | None


@frozen_by_name
class Queue:
    """Waiting jobs; poll again after `again_s` seconds. `unknown` is why no start is known."""

    jobs: list[Waiting]
    again_s: float
    unknown: str = ""


@frozen_by_name
class Artifact:
    """A file that a job left: its path from the working directory, its bytes, when it changed."""

    path: str
    size: int
    modified: float


@frozen_by_name
class Artifacts:
    """Files in the folder that a job's file names; `left_out` counts what else there is."""

    folder: str
    files: list[Artifact]
    left_out: int


@frozen_by_name
class LogRanks:
    """Ranks of an attempt that have a log."""

    attempt: int
    ranks: list[int]


@frozen_by_name
class JobText:
    """A job as fields of a job file, and as its text."""

    job: dict[str, Any]
    yaml: str


@frozen_by_name
class PolicyEntry:
    """One policy: its purpose, its origin, and its parameters with their defaults.

    `refused` is why this service cannot use it; empty if it can. `sections` are those of its
    page: Paper, Objective, Needs, Controls, Cost and Deviations; `said` is the same by its old
    name.
    """

    name: str
    summary: str
    said: dict[str, str]
    parameters: dict[str, str]
    tags: list[str]
    refused: str = ""
    sections: dict[str, str] = field(default_factory=dict)


@frozen_by_name
class PolicyEntries:
    """All policies, and the current one."""

    active: str
    policies: list[PolicyEntry]


EndWord = Literal["", "finished", "preempted", "failed", "cancelled", "suspended", "resized"]


@frozen_by_name
class HeldSpan:
    """A job on devices from `start` to `end`, null while it is there.

    Jobs of other tenants have no name. `lost_gpu_s` is the work since the last checkpoint of a job
    that was stopped or failed, null if it never wrote one.
    """

    job: str
    name: str
    tenant: str
    attempt: int
    on: list[GpusOnNode]
    share: float
    start: float
    end: float | None
    how: EndWord
    lost_gpu_s: float | None = None


@frozen_by_name
class TimelineAnswer:
    """Spans that overlap a window; if there are very many, `left_out` short ones are omitted.

    `begun` is the time of the first event. `part_read` is the fraction of the log read so far, 1
    for all. `seq` is the value for the next `after`.
    """

    now: float
    begun: float | None
    part_read: float
    seq: int
    spans: list[HeldSpan]
    left_out: int


@frozen_by_name
class MoveAnswer:
    """A job whose devices a decision changed; for jobs of other tenants only the numbers."""

    job: str
    name: str
    before_gpus: float
    after_gpus: float
    adjusted: bool
    why: str


@frozen_by_name
class DecisionAnswer:
    """One decision; `took_s` and `numbers` (a gap, prices by kind) if they are still known."""

    number: int
    at: float
    moves: list[MoveAnswer]
    more_moves: int
    rejected: int
    reasons: int
    by: str
    took_s: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)


@frozen_by_name
class DecisionList:
    """The last decisions that changed something, newest first."""

    decisions: list[DecisionAnswer]
    part_read: float


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
    """A metric of `policies`: name, meaning, format, and whether higher or lower is better."""

    name: str
    heading: str
    unit: Literal["plain", "hours", "percent"]
    better: Literal["less", "more"]
    help: str = ""


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
            name=metric.name,
            heading=metric.heading,
            unit=metric.unit,
            better=metric.better,
            help=metric.help.partition(", see ")[0].partition(": element ")[0],
        )
        for metric in COLUMNS
    ]


def tell_never(
    never: Mapping[str, Sequence[never_starts.StuckJobs]],
) -> dict[str, list[NeverStarts]]:
    """Return what never happens, by side, as the API answers it."""
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
    both: Mapping[str, QueueOutlook], seen: Mapping[JobId, Job], now: float
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
                on=[GpusOnNode(node=bar.node, gpus=[bar.gpu])],
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


@frozen_by_name
class Moved:
    """A running job that would move, and what that costs and gains."""

    id: str
    name: str
    text: str


@frozen_by_name
class Planned:
    """The result of submitting a job now."""

    starts_now: bool
    allocation: list[Part] | None
    displaces: list[Ahead]
    reason: str
    start: Start | None
    moves: list[Moved] = field(default_factory=list)
