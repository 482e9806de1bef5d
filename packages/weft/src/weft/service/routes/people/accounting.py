"""Usage of tenants and jobs: JSON, and CSV for spreadsheets."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import fields
from itertools import takewhile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from weft.core.model.job import name_of
from weft.runtime.loop.driver import Driver
from weft.runtime.records.entitlement import jain_of_known
from weft.runtime.records.job_records import ALL, JobRecord
from weft.runtime.records.usage import DayUsage
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service
from weft.service.http.replies import Json
from weft.service.responses.answers import Accounts, SharesOverTime, Tenant, TenantShare, Used
from weft.service.routes.jobs.jobs import find_page_start

router = APIRouter(prefix=PREFIX, tags=["accounting"], responses=PROBLEMS)

TABLE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/csv": {"schema": {"type": "string"}}},
        "description": "GPU time by tenant and job, or the jobs as CSV.",
    }
}
LATEST = 1e12
Time = Annotated[float, Field(ge=0.0, le=LATEST, allow_inf_nan=False)]
MOST = 1000
PART = 200  # rows of CSV at a time: some 3 ms
PAUSE_S = 0.01
COLUMNS = [field.name for field in fields(Used)]
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@router.get("/accounting", response_model=Accounts, responses=TABLE)
async def accounting(
    service: Service,
    who: Anyone,
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    since: Annotated[Time, Query(description="Jobs submitted, and days, from here on.")] = 0.0,
    until: Annotated[
        Time, Query(description="End before this day (UTC); whole days are counted.")
    ] = LATEST,
    limit: Annotated[int, Query(ge=0, le=MOST, description="Jobs of a page.")] = 100,
    after: Annotated[str | None, Query(max_length=160, description="The `next` of a page.")] = None,
) -> Response:
    """GPU-seconds per tenant in whole days (UTC), and per job, a page at a time.

    Tenants' sums hold what jobs used that are forgotten by now. CSV has every job, in parts.
    """
    if form == "csv":
        rows = _csv(service, who, since, until)
        return StreamingResponse(rows, media_type="text/csv; charset=utf-8")
    driver = service.driver
    now = driver.now
    seen = sorted(driver.ledger.used(now, since, until).items())
    weights = service.live.quotas.weights
    tenants = [
        _tenant(name, used, weights.get(name, 1.0))
        for name, used in seen
        if who.everywhere or name == who.tenant
    ]
    last = find_page_start(driver.ledger.jobs, who, after)
    records = await _choose(service, who, since, until, last, limit + 1)
    following = records[limit - 1].job.id if limit and len(records) > limit else None
    jobs = [_used(driver, record, now) for record in records[:limit]]
    jain = jain_of_known(tenant.received for tenant in tenants) if who.everywhere else None
    return Json(Accounts(now=now, tenants=tenants, jobs=jobs, next=following, jain=jain))


@router.get("/accounting/shares", response_model=SharesOverTime)
async def shares(
    service: Service,
    who: Anyone,
    since: Annotated[Time, Query(description="Windows that end after this.")] = 0.0,
) -> Response:
    """GPUs that tenants used and were entitled to over time, in about two hundred windows.

    A window is ten seconds long at first; windows grow with the time they cover, up to
    two weeks.
    """
    driver = service.driver
    now, shares = driver.now, driver.ledger.shares(driver.now)
    width, weights = shares.width_s, service.live.quotas.weights
    windows = [window for window in shares.windows() if (window + 1) * width > since]
    seconds = [max(min(now, (window + 1) * width) - window * width, 1e-9) for window in windows]
    tenants = []
    for name, sums in sorted(shares.sums().items()):
        if who.everywhere or name == who.tenant:
            pairs = [sums.get(window, (0.0, 0.0)) for window in windows]
            used, due = (
                [pair[i] / s for pair, s in zip(pairs, seconds, strict=True)] for i in (0, 1)
            )
            weight = weights.get(name, 1.0)
            tenants.append(
                TenantShare(tenant=name, weight=weight, used_gpus=used, entitled_gpus=due)
            )
    at = [window * width for window in windows]
    return Json(SharesOverTime(now=now, window_s=width, at=at, tenants=tenants))


def _tenant(name: str, used: DayUsage, weight: float) -> Tenant:
    due = used.entitled_s
    return Tenant(
        tenant=name,
        jobs=used.jobs,
        gpu_seconds=used.gpu_s,
        weight=weight,
        entitled_gpu_seconds=due,
        received=used.gpu_s / due if due > 0.0 else None,
    )


async def _csv(service: Context, who: Caller, since: float, until: float) -> AsyncIterator[str]:
    """One row per job, with time for others between parts."""
    yield as_csv([COLUMNS])
    last = -1
    while True:
        now = service.driver.now
        records = await _choose(service, who, since, until, last, PART)
        yield as_csv(_cells(_used(service.driver, record, now)) for record in records)
        if len(records) < PART:
            return
        last = records[-1].number
        await asyncio.sleep(PAUSE_S)


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as a spreadsheet reads them. What it would take for a formula begins with a quote."""
    out = io.StringIO()
    csv.writer(out).writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cells(row: Used) -> list[Any]:
    kinds = ";".join(f"{kind}:{used}" for kind, used in row.kinds.items())
    return [kinds if name == "kinds" else getattr(row, name) for name in COLUMNS]


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


async def _choose(
    service: Context, who: Caller, since: float, until: float, last: int, limit: int
) -> list[JobRecord]:
    """Jobs of the caller's that were submitted then, in order of submission."""
    whose = ALL if who.everywhere else who.tenant
    read = service.driver.ledger.jobs.page_reader(limit, after=last, tenant=whose, since=since)
    records = await service.read(read)
    return [*takewhile(lambda record: record.submitted < until, records)]


def _used(driver: Driver, record: JobRecord, now: float) -> Used:
    spent, used = record.spending.at(now, record.gpu_s), record.gpu_s.at(now)
    failed = record.outcome == "failed"
    return Used(
        id=record.job.id,
        name=name_of(record.job),
        tenant=record.job.tenant,
        user=record.job.user,
        state=record.outcome or driver.job(record.job.id).state,
        submitted=record.submitted,
        started=record.started,
        ended=record.ended,
        restarts=record.restarts,
        gpu_seconds=used,
        kinds=dict(spent.kinds),
        failed_gpu_seconds=used if failed else 0.0,
        idle_gpu_seconds=0.0 if failed else spent.idle,
        restarted_gpu_seconds=0.0 if failed else min(spent.lost, used - spent.idle),
    )
