"""The numbers people compare: each defined once, for JSON, tables, reports and documents.

A metric is added here and nowhere else: what it is called, what it means, how it is written, and
how it follows from what happened to each job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from weft.core.table import Bools, Floats, Rows
from weft.formulas.statistics import HOUR, contention, finish_time_fairness, mean, percentile

Unit = Literal["plain", "hours", "percent"]
Better = Literal["less", "more"]


@dataclass(frozen=True)
class Run:
    """What happened to each job of a run, in order of submission; NaN where it never did.

    `utility` and `admitted` are there where jobs say what they are worth, `reached` where losses
    are followed: seconds from submission to a part of all that the loss falls.
    """

    submitted: Floats
    ended: Floats
    ran_s: Floats
    length: Floats
    need: Floats
    gpu_s: Floats
    starts: Rows
    gpus: int
    preemptions: int = 0
    decisions: int = 0
    utility: float | None = None
    admitted: float | None = None
    reached: Mapping[float, Floats] = field(default_factory=dict)

    @cached_property
    def done(self) -> Bools:
        """Jobs that ended."""
        return ~np.isnan(self.ended)

    @cached_property
    def jct(self) -> Floats:
        """Completion times of the finished."""
        return self.ended[self.done] - self.submitted[self.done]

    @cached_property
    def waited(self) -> Floats:
        """Seconds without devices of the finished."""
        waited = self.jct - self.ran_s[self.done]
        waited[np.abs(waited) < 1e-6] = 0.0  # differences of large times are not exact
        return waited

    @cached_property
    def crowd(self) -> tuple[float, int]:
        """Unfinished jobs: time average and maximum."""
        return contention(self.submitted[self.done], self.ended[self.done])

    @cached_property
    def makespan(self) -> float:
        """Seconds from the first submission to the last end."""
        ended = self.ended[self.done]
        return float(ended.max() - self.submitted.min()) if len(ended) else 0.0

    @cached_property
    def fairness(self) -> Floats:
        """Finish-time fairness of the finished."""
        at = self.done
        return finish_time_fairness(
            self.submitted[at], self.ended[at], self.length[at], self.need[at], self.gpus
        )

    @cached_property
    def restarts(self) -> Floats:
        """Starts of each job after its first."""
        return np.maximum(self.starts - 1, 0).astype(float)

    @property
    def utilization(self) -> float:
        """GPU time held, over all that there was."""
        capacity = self.gpus * self.makespan
        return float(self.gpu_s.sum()) / capacity if capacity else 0.0

    def reached_h(self, part: float) -> float | None:
        """Mean hours until a part of the fall of the loss; None where losses are not followed."""
        times = self.reached.get(part)
        return None if times is None else mean(times) / HOUR


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run, under the name it has in JSON and in Python.

    `of` makes it, None where the run has no such number. `help` defines it, `over` says of which
    jobs. With a `heading` it has a column in reports, and if `brief` in terminal tables as well.
    """

    name: str
    of: Callable[[Run], float | None]
    help: str
    over: str = ""
    unit: Unit = "plain"
    better: Better = "less"
    heading: str = ""
    brief: bool = True


FINISHED, ALL = "finished", "all"
WORTH = "; only where jobs say what they are worth"
LOSS = "of all that the loss falls in the job; only where losses are followed"
ELEMENT = "of the n sorted completion times, from 0"

METRICS: tuple[Metric, ...] = (
    Metric("jobs", lambda run: len(run.submitted), "jobs in the workload"),
    Metric("finished", lambda run: int(run.done.sum()), "jobs that ended"),
    Metric(
        "failed",
        lambda run: int((~run.done).sum()),
        "jobs that did not: the policy rejected them. A job that failed in the trace is replayed "
        "and finishes",
    ),
    Metric(
        "avg_jct_h",
        lambda run: mean(run.jct) / HOUR,
        "mean completion time (JCT)",
        FINISHED,
        "hours",
        heading="avg JCT",
    ),
    Metric(
        "p50_jct_h",
        lambda run: percentile(run.jct, 0.50) / HOUR,
        f"half of the jobs finished within: element number int(0.5 n) {ELEMENT}",
        FINISHED,
        "hours",
        heading="p50",
    ),
    Metric(
        "p99_jct_h",
        lambda run: percentile(run.jct, 0.99) / HOUR,
        f"99 % of the jobs finished within: element number int(0.99 n) {ELEMENT}",
        FINISHED,
        "hours",
        heading="p99",
    ),
    Metric(
        "max_jct_h",
        lambda run: float(run.jct.max(initial=0.0)) / HOUR,
        "the longest completion time",
        FINISHED,
        "hours",
        heading="max JCT",
        brief=False,
    ),
    Metric(
        "makespan_h",
        lambda run: run.makespan / HOUR,
        "first submission to last end",
        FINISHED,
        "hours",
        heading="makespan",
    ),
    Metric(
        "avg_queue_h",
        lambda run: mean(run.waited) / HOUR,
        "mean of completion time minus the time the job held GPUs: waiting at first, after a stop, "
        "and while it leaves its GPUs",
        FINISHED,
        "hours",
        heading="avg wait",
    ),
    Metric(
        "gpu_hours_per_job",
        lambda run: mean(run.gpu_s) / HOUR,
        "mean of GPUs held times time held, shares of a GPU counted as such; restart costs and "
        "lost progress included",
        ALL,
    ),
    Metric(
        "restarts_per_job",
        lambda run: mean(run.restarts),
        "mean of the number of starts minus 1, after stops and failures alike",
        ALL,
        heading="restarts/job",
    ),
    Metric("preemptions", lambda run: run.preemptions, "running jobs that the policy stopped"),
    Metric(
        "avg_contention",
        lambda run: run.crowd[0],
        "sum of completion times over makespan: the average number of unfinished jobs",
        FINISHED,
    ),
    Metric(
        "max_contention", lambda run: run.crowd[1], "most unfinished jobs at any time", FINISHED
    ),
    Metric(
        "utilization",
        lambda run: run.utilization,
        "GPU time held, over all GPUs of the cluster times makespan; more is better",
        ALL,
        "percent",
        "more",
        "GPUs used",
    ),
    Metric(
        "worst_ftf",
        lambda run: float(run.fairness.max(initial=0.0)),
        "largest finish-time fairness of a job, see below",
        FINISHED,
        heading="worst FTF",
    ),
    Metric(
        "unfair_fraction",
        lambda run: mean((run.fairness > 1.0 + 1e-9).astype(float)),
        "share of jobs worse off than under equal division: with a finish-time fairness above 1",
        FINISHED,
        "percent",
        heading="unfair",
    ),
    Metric("decisions", lambda run: run.decisions, "times the policy decided"),
    Metric(
        "total_utility",
        lambda run: run.utility,
        f"sum of the worth of jobs at their completion time{WORTH}",
        FINISHED,
        better="more",
    ),
    Metric(
        "admitted_fraction",
        lambda run: run.admitted,
        f"jobs that started before their target time, over those that have one{WORTH}",
        ALL,
        better="more",
    ),
    Metric(
        "avg_t90_h",
        lambda run: run.reached_h(0.90),
        f"mean time from submission until 90 % {LOSS}",
        "those that got there",
    ),
    Metric(
        "avg_t95_h",
        lambda run: run.reached_h(0.95),
        f"mean time from submission until 95 % {LOSS}",
        "those that got there",
    ),
)


def measure(run: Run) -> dict[str, float]:
    """Every metric that the run has, by name."""
    found = ((metric.name, metric.of(run)) for metric in METRICS)
    return {name: value for name, value in found if value is not None}
