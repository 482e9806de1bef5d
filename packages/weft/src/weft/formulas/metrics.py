"""The numbers people compare: each defined once, for JSON, tables, reports and documents.

A metric is added here and nowhere else: what it is called, what it means, how it is written, and
how it follows from what happened to each job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

from weft.formulas.fairness.shares import LOSS as LOSS_BELOW
from weft.formulas.fairness.shares import envy_of, jain_index, received_by_entitlement, shortfall
from weft.formulas.run import RunOutcome
from weft.formulas.statistics import HOUR, least, mean, percentile
from weft.frozen import frozen

Unit = Literal["plain", "hours", "percent"]
Better = Literal["less", "more"]
Columns = Literal["main", "waits", "fairness"]


@frozen
class Metric:
    """One number of a run, under the name it has in JSON and in Python.

    `of` makes it, None where the run has no such number. `help` defines it, `over` says of which
    jobs. With a `heading` it has a column in reports, and if `brief` in terminal tables as well:
    in those named by `tables`, or if none is in the main one of runs that have it. A `relative`
    one is also shown against the first policy's.
    """

    name: str
    of: Callable[[RunOutcome], float | None]
    help: str
    over: str = ""
    unit: Unit = "plain"
    better: Better = "less"
    heading: str = ""
    brief: bool = True
    tables: tuple[Columns, ...] = ("main",)
    relative: bool = False


BOUNDED = "jct_over_bound"
SHORT_WAIT, SLOWDOWN_10S, SLOWDOWN_10MIN = "short_queue_h", "slowdown_10s", "slowdown_10min"
FINISHED, ALL = "finished", "all"
UNFAIR = 1.05  # a job above it was treated unfairly, as Shockwave counts
ALL_TABLES: tuple[Columns, ...] = ("main", "waits", "fairness")
BOTH: tuple[Columns, ...] = ("main", "fairness")
WAITS: tuple[Columns, ...] = ("waits",)
MINUTES_10 = 600.0  # seconds; the literature bounds slowdowns by 10 s or by this
FAIRNESS: tuple[Columns, ...] = ("fairness",)
WORTH = "; only if jobs have a value"
LOSS = "of all that the loss falls in the job; only where losses are followed"
LENT = "; only where machines are lent"
KWH = 3_600_000.0  # joules
SLEPT = "; only where nodes can sleep"
DUE = "; only where jobs have deadlines"
SPOT = "; only where there are spot jobs"
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
        tables=ALL_TABLES,
        relative=True,
    ),
    Metric(
        BOUNDED,
        lambda run: None,  # noqa: ARG005 - follows from the truth of the workload, not from a run
        "mean completion time over the bound that no schedule can beat; only with `--bound`, where "
        "the policy lets no jobs share a GPU and all jobs ended",
        FINISHED,
        heading="over bound",
        tables=(),
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
        relative=True,
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
        relative=True,
    ),
    Metric(
        "avg_queue_h",
        lambda run: mean(run.waited) / HOUR,
        "mean of completion time minus the time the job held GPUs: waiting at first, after a stop, "
        "and while it leaves its GPUs",
        FINISHED,
        "hours",
        heading="avg wait",
        tables=("main", "waits"),
        relative=True,
    ),
    Metric(
        "p95_queue_h",
        lambda run: percentile(run.waited, 0.95) / HOUR,
        "95 % of the jobs waited at most so: element number int(0.95 n) of the n sorted waits, "
        "from 0",
        FINISHED,
        "hours",
        heading="p95 wait",
        tables=WAITS,
    ),
    Metric(
        SHORT_WAIT,
        lambda run: mean(run.waited[run.short]) / HOUR,
        "mean wait of jobs that are shorter than the median length",
        FINISHED,
        "hours",
        heading="short wait",
        tables=WAITS,
    ),
    Metric(
        SLOWDOWN_10S,
        lambda run: mean(run.slowdown(10.0)),
        "mean bounded slowdown: completion time over length, with lengths below 10 s taken as 10 s "
        "and slowdowns below 1 as 1",
        FINISHED,
        heading="slowdown 10 s",
        tables=WAITS,
    ),
    Metric(
        SLOWDOWN_10MIN,
        lambda run: mean(run.slowdown(MINUTES_10)),
        "the same with 10 min instead of 10 s",
        FINISHED,
        heading="slowdown 10 min",
        tables=WAITS,
    ),
    Metric(
        "gpu_hours_wasted",
        lambda run: float(run.wasted_s.sum()) / HOUR,
        "GPU-hours that jobs held beyond their length times the GPUs they asked for: restarts, "
        "lost progress, and slower kinds, sizes and neighbours",
        FINISHED,
        heading="GPU-h wasted",
        tables=WAITS,
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
        relative=True,
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
        "fragmented_gpus",
        lambda run: run.fragmented_gpus,
        "idle GPUs that a typical job of the workload could not use, averaged over time, see below",
        ALL,
        heading="fragmented",
        brief=False,
    ),
    Metric(
        "fragmentation",
        lambda run: run.idle.rate,
        "part of all idle GPU time that a typical job of the workload could not use, see below",
        ALL,
        "percent",
    ),
    Metric(
        "worst_ftf",
        lambda run: float(run.fairness.max(initial=0.0)),
        "largest finish-time fairness of a job, see below",
        FINISHED,
        heading="worst FTF",
        tables=ALL_TABLES,
    ),
    Metric(
        "unfair_fraction",
        lambda run: mean((run.fairness > 1.0 + 1e-9).astype(float)),
        "share of jobs worse off than under equal division: with a finish-time fairness above 1",
        FINISHED,
        "percent",
        heading="unfair",
        tables=BOTH,
    ),
    Metric(
        "ftf_above_105",
        lambda run: mean((run.fairness > UNFAIR).astype(float)),
        "share of jobs with a finish-time fairness above 1.05",
        FINISHED,
        "percent",
        heading="FTF > 1.05",
        tables=FAIRNESS,
    ),
    Metric(
        "worst_static_ftf",
        lambda run: float(run.static_fairness.max(initial=0.0)),
        "largest static finish-time fairness of a job, as Shockwave counts it, see below",
        FINISHED,
        heading="worst static FTF",
        tables=FAIRNESS,
    ),
    Metric(
        "static_ftf_above_105",
        lambda run: mean((run.static_fairness > UNFAIR).astype(float)),
        "share of jobs with a static finish-time fairness above 1.05",
        FINISHED,
        "percent",
        heading="static > 1.05",
        tables=FAIRNESS,
    ),
    Metric(
        "jain_users",
        lambda run: jain_index(received_by_entitlement(run.shares)),
        "Jain's index over users of the GPU time received over the GPU time entitled to: 1 where "
        "all are treated alike; more is better",
        ALL,
        better="more",
        heading="Jain",
        tables=FAIRNESS,
    ),
    Metric(
        "share_shortfall",
        lambda run: shortfall(run.shares),
        "part of what users were entitled to in an hour that they did not receive in that hour",
        ALL,
        "percent",
        heading="shortfall",
        tables=FAIRNESS,
    ),
    Metric(
        "worst_envy",
        lambda run: float(envy_of(run.shares).max(initial=0.0)),
        "how much less GPU time than in another user's place a user had, at most, see below",
        ALL,
        "percent",
        heading="envy",
        tables=FAIRNESS,
    ),
    Metric(
        "least_job_ltgf",
        lambda run: least(run.job_ltgf),
        "least long-term GPU-time fairness of a job, see below; more is better",
        FINISHED,
        better="more",
        heading="job LTGF",
        tables=FAIRNESS,
    ),
    Metric(
        "jobs_at_loss",
        lambda run: mean((run.job_ltgf < LOSS_BELOW).astype(float)),
        "share of jobs with a long-term GPU-time fairness below 0.95",
        FINISHED,
        "percent",
        heading="at loss",
        tables=FAIRNESS,
    ),
    Metric(
        "least_tenant_ltgf",
        lambda run: least(run.tenant_ltgf),
        "least long-term GPU-time fairness of a tenant, see below; more is better",
        FINISHED,
        better="more",
        heading="tenant LTGF",
        tables=FAIRNESS,
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
        "deadlines_met",
        lambda run: None if run.deadlines is None else run.deadlines[0] / sum(run.deadlines),
        f"jobs that ended by their deadline, over all that have one{DUE}",
        ALL,
        "percent",
        better="more",
    ),
    Metric(
        "deadlines_missed",
        lambda run: None if run.deadlines is None else run.deadlines[1],
        f"jobs that were not declined and ended after their deadline{DUE}",
        ALL,
    ),
    Metric(
        "deadlines_declined",
        lambda run: None if run.deadlines is None else run.deadlines[2],
        f"jobs with a deadline that were declined{DUE}",
        ALL,
    ),
    Metric(
        "spot_hours_kept",
        lambda run: None if run.spot_hours is None else run.spot_hours[0] / sum(run.spot_hours),
        f"hours of spot jobs that no stop broke, or that ended with the job, over all{SPOT}",
        ALL,
        "percent",
        better="more",
    ),
    Metric(
        "spot_wait_h",
        lambda run: None if run.spot_hours is None else run.waited_of(run.spot) / HOUR,
        f"mean time that spot jobs waited{SPOT}",
        FINISHED,
        "hours",
    ),
    Metric(
        "guaranteed_wait_h",
        lambda run: None if run.spot_hours is None else run.waited_of(~run.spot) / HOUR,
        f"mean time that all other jobs waited{SPOT}",
        FINISHED,
        "hours",
    ),
    Metric(
        "node_hours_asleep",
        lambda run: None if run.nodes_slept is None else run.nodes_slept.node_s / HOUR,
        f"nodes times the time they slept{SLEPT}",
    ),
    Metric(
        "kwh_saved",
        lambda run: None if run.nodes_slept is None else run.nodes_slept.gpu_j / KWH or None,
        f"kWh that GPUs of sleeping nodes would have drawn idle, of known kinds{SLEPT}",
    ),
    Metric(
        "wake_ups",
        lambda run: None if run.nodes_slept is None else run.nodes_slept.wake_ups,
        f"times that nodes were woken{SLEPT}",
    ),
    Metric(
        "nodes_woken",
        lambda run: None if run.nodes_slept is None else run.nodes_slept.woken,
        f"nodes that were woken{SLEPT}",
    ),
    Metric(
        "boot_delay_h",
        lambda run: None if run.nodes_slept is None else run.nodes_slept.delay_s / HOUR,
        f"boot times, one for each job that waited for nodes to wake{SLEPT}",
    ),
    Metric(
        "loaned_gpu_hours",
        lambda run: None if run.loaned is None else run.loaned.lent_s / HOUR,
        f"GPUs of loaned machines times the time they were there{LENT}",
    ),
    Metric(
        "loan_utilization",
        lambda run: None if run.loaned is None else run.loaned.used_part,
        f"part of that which jobs held; more is better{LENT}",
        ALL,
        "percent",
        "more",
    ),
    Metric(
        "servers_reclaimed",
        lambda run: None if run.loaned is None else run.loaned.returned,
        f"loaned machines that were given back{LENT}",
    ),
    Metric(
        "reclaim_stops",
        lambda run: None if run.loaned is None else run.loaned.stopped,
        f"jobs that lost all their GPUs when machines were given back{LENT}",
    ),
    Metric(
        "reclaim_scale_ins",
        lambda run: None if run.loaned is None else run.loaned.scaled_in,
        f"jobs that lost a part of their GPUs when machines were given back{LENT}",
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


def columns_of(which: Columns, runs: Collection[Mapping[str, float]]) -> list[Metric]:
    """The metrics that a table of these runs has a column for."""
    return [
        metric
        for metric in METRICS
        if metric.heading
        and which in (metric.tables or ("main",))
        and (metric.tables or any(metric.name in metrics for metrics in runs))
    ]


def measure(run: RunOutcome) -> dict[str, float]:
    """Every metric that the run has, by name."""
    values = ((metric.name, metric.of(run)) for metric in METRICS)
    return {name: value for name, value in values if value is not None}
