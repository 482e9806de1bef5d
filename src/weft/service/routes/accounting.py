"""Who used how much: JSON and CSV for people, Prometheus for machines."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, Response

from weft.app.serve.live import Driver, JobRecord
from weft.service.auth import Caller
from weft.service.context import PROBLEMS, Anyone, Context, Refused, Service
from weft.service.describe import name_of
from weft.service.responses import Accounts, Json, Used
from weft.service.routes.cluster import held_by_kind

router = APIRouter(tags=["accounting"], responses=PROBLEMS)
metrics = APIRouter(tags=["accounting"])

TABLE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/csv": {"schema": {"type": "string"}}},
        "description": "GPU time by tenant and job, or the jobs as CSV.",
    }
}
TEXT: dict[int | str, dict[str, Any]] = {
    **{code: PROBLEMS[code] for code in (401, 403)},
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
}
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@router.get("/accounting", response_model=Accounts, responses=TABLE)
async def accounting(
    service: Service,
    who: Anyone,
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    since: Annotated[float, Query(ge=0.0, le=1e12, allow_inf_nan=False)] = 0.0,
) -> Response:
    """GPU-seconds of tenants and jobs, up to now; of jobs submitted since a time."""
    now = service.driver.now
    rows = list(_used(service.driver, who, now, since))
    if form == "csv":
        return Response(as_csv(rows), media_type="text/csv; charset=utf-8")
    tenants: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row["tenant"]
        one = tenants.setdefault(name, {"tenant": name, "jobs": 0, "gpu_seconds": 0.0})
        one["jobs"] += 1
        one["gpu_seconds"] += row["gpu_seconds"]
    return Json({"now": now, "tenants": list(tenants.values()), "jobs": rows})


@metrics.get("/metrics", response_class=PlainTextResponse, responses=TEXT)
async def prometheus(service: Service, who: Anyone) -> PlainTextResponse:
    """Numbers to watch, in Prometheus' text format; of all tenants, so not for one of them."""
    if not who.everywhere:
        raise Refused(403, "metrics are of all tenants", "use a token of an admin or viewer of '*'")
    text = "\n".join(_lines(service)) + "\n"
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def as_csv(rows: list[dict[str, Any]]) -> str:
    """A row a job. What a spreadsheet would take for a formula begins with a quote."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(Used.model_fields))
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return out.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _used(driver: Driver, who: Caller, now: float, since: float) -> Iterator[dict[str, Any]]:
    for record in driver.ledger.jobs.values():
        if who.sees(record.job) and record.submitted >= since:
            yield {
                "id": record.job.id,
                "name": name_of(record.job),
                "tenant": record.job.tenant,
                "user": record.job.user,
                "state": _state(driver, record),
                "submitted": record.submitted,
                "started": record.started,
                "ended": record.ended,
                "restarts": record.restarts,
                "gpu_seconds": record.gpu_s.at(now),
            }


def _state(driver: Driver, record: JobRecord) -> str:
    return record.outcome or driver.job(record.job.id).state or "unknown"


def _lines(service: Context) -> Iterator[str]:
    driver = service.driver
    state = driver.scheduler.state
    jobs: Counter[str] = Counter(_state(driver, one) for one in driver.ledger.jobs.values())
    waiting: defaultdict[str, float] = defaultdict(float)
    for job, on in zip(state.table.jobs, state.table.allocations, strict=True):
        if on is None:
            waiting[job.tenant] += job.demand.min * job.demand.share
    restarts = sum(one.restarts for one in driver.ledger.jobs.values())
    yield from _metric("jobs", "gauge", "Jobs by state.", "state", jobs)
    gpus = state.cluster.gpus_by_kind
    yield from _metric("gpus", "gauge", "Devices of nodes that are up.", "kind", gpus)
    yield from _metric("gpus_held", "gauge", "Devices promised.", "kind", held_by_kind(driver))
    yield from _metric(
        "gpus_waited_for", "gauge", "GPUs that waiting jobs need.", "tenant", waiting
    )
    used = driver.ledger.usage(driver.now)
    yield from _metric("gpu_seconds_total", "counter", "GPU time used.", "tenant", used)
    nodes = Counter(word for _, word in driver.nodes())
    yield from _metric("nodes", "gauge", "Machines by state.", "state", nodes)
    single: Mapping[str, tuple[str, str, float]] = {
        "decisions_total": ("counter", "Decisions taken.", state.decisions),
        "events_total": ("counter", "Events in the log.", driver.seq),
        "restarts_total": ("counter", "Starts after a job's first.", restarts),
        "policy_trouble": ("gauge", "1 while the policy fails.", bool(driver.trouble)),
    }
    for name, (kind, text, value) in single.items():
        yield from _metric(name, kind, text, "", {"": value})


def _metric(
    name: str, kind: str, text: str, label: str, values: Mapping[str, float]
) -> Iterator[str]:
    yield f"# HELP weft_{name} {text}"
    yield f"# TYPE weft_{name} {kind}"
    for key, value in values.items():
        told = f'{{{label}="{_escaped(key)}"}}' if label else ""
        yield f"weft_{name}{told} {float(value):.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
