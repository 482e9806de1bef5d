"""Numbers to watch, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from math import inf
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse

from weft.core.latency import Histogram
from weft.runtime.records.status import count_words, words_but_pending
from weft.service.access.redaction import mask, secrets_of
from weft.service.context import PROBLEMS, Anyone, Context, Service
from weft.service.http.replies import HttpProblem
from weft.service.jobs.job_view import JobView
from weft.service.needs import count_needs
from weft.service.routes.cluster.cluster import count_held_by_kind, count_nodes

router = APIRouter(tags=["metrics"])

MOST_SERIES = 1_000  # of metrics of jobs
Names = Annotated[
    list[str],
    Query(
        alias="metric",
        max_length=64,
        description="Metrics of running jobs, also to be given; at most 1,000 values in all.",
    ),
]

TEXT: dict[int | str, dict[str, Any]] = {
    **{code: PROBLEMS[code] for code in (401, 403)},
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
}


@router.get("/metrics", response_class=PlainTextResponse, responses=TEXT)
async def prometheus(
    service: Service,
    who: Anyone,
    names: Names = [],  # noqa: B006 - as FastAPI reads it
) -> PlainTextResponse:
    """Metrics in Prometheus' text format; they cover all tenants, so a tenant may not read them."""
    if not who.everywhere:
        raise HttpProblem(
            403, "metrics cover all tenants", "use a token of an admin or viewer of '*'"
        )
    needs = count_needs(await service.needs.read())
    people = _metric(
        "needs", "gauge", "Jobs, nodes and findings that need a person.", "kind", needs
    )
    text = "\n".join([*_lines(service), *people, *_measured(service, {*names})]) + "\n"
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _lines(service: Context) -> Iterator[str]:
    driver = service.driver
    state = driver.scheduler.state
    records = driver.ledger.jobs
    jobs = count_words(records, words_but_pending(records, state))
    jobs.update(records.counts())
    waiting: defaultdict[str, float] = defaultdict(float)
    for job, on in zip(state.table.jobs, state.table.allocations, strict=True):
        if on is None and job.id not in state.table.suspended:
            waiting[job.tenant] += job.demand.min * job.demand.share
    used = driver.ledger.used(driver.now)
    restarts = sum(usage.restarts for usage in used.values())
    yield from _metric("jobs", "gauge", "Jobs by state.", "state", jobs)
    gpus = state.cluster.gpus_by_kind
    yield from _metric("gpus", "gauge", "Devices of nodes that are up.", "kind", gpus)
    yield from _metric(
        "gpus_held", "gauge", "Devices promised.", "kind", count_held_by_kind(driver)
    )
    held = count_held_by_kind(driver)
    use = {kind: held.get(kind, 0.0) / count for kind, count in gpus.items() if count}
    yield from _metric("utilisation_ratio", "gauge", "Part of the GPUs promised.", "kind", use)
    yield from _queue(service)
    yield from _metric(
        "gpus_waited_for", "gauge", "GPUs that waiting jobs need.", "tenant", waiting
    )
    spent = {tenant: usage.gpu_s for tenant, usage in used.items()}
    yield from _metric("gpu_seconds_total", "counter", "GPU time used.", "tenant", spent)
    yield from _work(service, {tenant: float(usage.restarts) for tenant, usage in used.items()})
    worked = next(reversed(driver.decisions.recent.values()), None)
    numbers = {} if worked is None else worked.numbers
    yield from _metric(
        "policy_number",
        "gauge",
        "Numbers that the policy reported with its last decision.",
        "name",
        numbers,
    )
    nodes = count_nodes(service)
    yield from _metric("nodes", "gauge", "Machines by state.", "state", nodes)
    single: Mapping[str, tuple[str, str, float]] = {
        "goodput_samples_per_second": (
            "gauge",
            "Useful samples per second of all running jobs that report.",
            sum(
                record.goodput or 0.0
                for record in driver.ledger.jobs.live.values()
                if record.running
            ),
        ),
        "decisions_total": ("counter", "Decisions taken.", state.decisions),
        "events_total": ("counter", "Events in the log.", driver.seq),
        "restarts_total": ("counter", "Starts after a job's first.", restarts),
        "deadlines_missed_total": (
            "counter",
            "Jobs whose deadline came before their end.",
            sum(usage.missed for usage in used.values()),
        ),
        "policy_trouble": ("gauge", "1 while the policy fails.", bool(driver.trouble)),
        "policy_failures_total": (
            "counter",
            "Decisions that the policy failed to make.",
            driver.decisions.failures,
        ),
        "policy_given_up": (
            "gauge",
            "1 while a safe order decides for a policy that failed too often.",
            bool(driver.decisions.given_up),
        ),
        "second_looks_total": (
            "counter",
            "Decisions requested because a job waited beside idle devices that it could use.",
            service.live.idle_beside.looks,
        ),
        "dropped_messages_total": (
            "counter",
            "Messages of jobs that were invalid, wholly or in part.",
            driver.messages.dropped,
        ),
    }
    yield from _health(service)
    yield from _pairs(
        "long_turns_total",
        "counter",
        "Turns of the loop of more than 100 ms of CPU time.",
        ("route", "tenant"),
        service.turns.long,
    )
    idle = service.live.idle_watch.jobs
    now_idle = Counter(use.tenant for use in idle.idle.values())
    yield from _metric(
        "idle_jobs", "gauge", "Running jobs that do not use their GPUs.", "tenant", now_idle
    )
    yield from _metric(
        "idle_gpu_seconds_total",
        "counter",
        "GPU time that jobs held without using it.",
        "tenant",
        idle.wasted_gpu_s,
    )
    yield from _metric(
        "jobs_beside_idle_gpus",
        "gauge",
        "Jobs that have waited for over a minute though they fit, by their reason.",
        "reason",
        service.live.idle_beside.counts,
    )
    yield from _verdict(service)
    for name, (kind, text, value) in {**single, **_times(service)}.items():
        yield from _metric(name, kind, text, "", {"": value})


def _measured(service: Context, names: set[str]) -> Iterator[str]:
    """The last values of these metrics of running jobs."""
    values = {
        (str(record.job.id), mask(name, secrets_of(record.job))): series.value
        for record in service.driver.ledger.jobs.live.values()
        if names and record.running
        for name, series in record.metrics.series.items()
        if name in names and series.value is not None
    }
    few = dict(islice(sorted(values.items()), MOST_SERIES))
    if few:
        text = "Last values that programs of running jobs measured."
        yield from _pairs("job_metric", "gauge", text, ("job", "metric"), few)


def _health(service: Context) -> Iterator[str]:
    """Parts that work, and what people ask for."""
    checks = {name: float(check.ok) for name, check in service.watchdog.checks().items()}
    yield from _metric("healthy", "gauge", "1 while a part works.", "part", checks)
    refused = service.buckets.refused
    yield from _metric(
        "requests_refused_total", "counter", "Requests beyond a tenant's rate.", "tenant", refused
    )
    yield from _metric(
        "streams", "gauge", "Open event streams and logs.", "tenant", service.streams.open
    )


def _verdict(service: Context) -> Iterator[str]:
    """Findings of the judge; nothing before it looked."""
    verdict = service.verdicts.last or {}
    weights = {"wrong": verdict.get("wrong"), "doubt": verdict.get("doubts")}
    yield from _metric(
        "verdict_findings",
        "gauge",
        "Findings of the judge about the last month's log, when it was checked last.",
        "weight",
        {weight: count for weight, count in weights.items() if count is not None},
    )
    made = {"": float(verdict["made"])} if verdict else {}
    yield from _metric("verdict_time_seconds", "gauge", "When the log was judged.", "", made)


def _work(service: Context, again: Mapping[str, float]) -> Iterator[str]:
    """Restarts, lost work, waiting times and times of decisions."""
    tallies, took = service.driver.ledger.tallies, service.driver.decisions.took
    yield from _metric(
        "tenant_restarts_total", "counter", "Starts after a job's first.", "tenant", again
    )
    yield from _metric(
        "lost_gpu_seconds_total",
        "counter",
        "GPU time since the last checkpoint of attempts that were stopped or failed.",
        "tenant",
        tallies.lost_gpu_s,
    )
    yield from _histogram("wait_seconds", "From submission to the first start.", tallies.waits)
    yield from _histogram("decision_duration_seconds", "Times of decisions.", took.times)


def _queue(service: Context) -> Iterator[str]:
    """Waiting jobs by tenant and by the one thing that each waits for."""
    job_view, driver = JobView(service.driver), service.driver
    counts: Counter[tuple[str, str]] = Counter()
    for job, record in driver.ledger.jobs.live.items():
        why = None if record.outcome else job_view.waits_for(driver.job(job))
        if why is not None:
            counts[record.job.tenant, why.blocker.value] += 1
    yield from _pairs(
        "queue_jobs",
        "gauge",
        "Waiting jobs by tenant and by what each waits for.",
        ("tenant", "reason"),
        counts,
    )


def _pairs(
    name: str,
    kind: str,
    text: str,
    labels: tuple[str, str],
    counts: Mapping[tuple[str, str], float],
) -> Iterator[str]:
    yield f"# HELP weft_{name} {text}"
    yield f"# TYPE weft_{name} {kind}"
    for (first, second), count in sorted(counts.items()):
        shown = f'{labels[0]}="{_escape(first)}",{labels[1]}="{_escape(second)}"'
        yield f"weft_{name}{{{shown}}} {count}"


def _histogram(name: str, text: str, of: Histogram) -> Iterator[str]:
    yield f"# HELP weft_{name} {text}"
    yield f"# TYPE weft_{name} histogram"
    for bound, count in of.cumulative():
        edge = "+Inf" if bound == inf else f"{bound:g}"
        yield f'weft_{name}_bucket{{le="{edge}"}} {count}'
    yield f"weft_{name}_sum {of.total:.17g}"
    yield f"weft_{name}_count {of.count}"


def _times(service: Context) -> dict[str, tuple[str, str, float]]:
    parts = {"append": service.live.store.appends, "decision": service.driver.decisions.took}
    times: dict[str, tuple[str, str, float]] = {
        "loop_late_seconds": ("gauge", "How late the loop is.", service.watchdog.late_s),
        "loop_turn_seconds_longest": (
            "gauge",
            "CPU time of the loop's longest turn so far.",
            service.turns.longest_s,
        ),
    }
    for name, took in parts.items():
        times |= {
            f"{name}s_timed_total": ("counter", f"Times of {name}s.", took.count),
            f"{name}_seconds_total": ("counter", f"Seconds of all {name}s.", took.total_s),
            f"{name}_seconds_last": ("gauge", f"Seconds of the last {name}.", took.last_s),
            f"{name}_seconds_longest": ("gauge", f"The longest {name} so far.", took.longest_s),
            f"{name}_seconds_now": ("gauge", f"How long a {name} is going on.", took.busy_s()),
        }
    return times


def _metric(
    name: str, kind: str, text: str, label: str, values: Mapping[str, float]
) -> Iterator[str]:
    yield f"# HELP weft_{name} {text}"
    yield f"# TYPE weft_{name} {kind}"
    for key, value in values.items():
        labels = f'{{{label}="{_escape(key)}"}}' if label else ""
        yield f"weft_{name}{labels} {float(value):.17g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
