"""Who used how much: JSON, and CSV for spreadsheets."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice, takewhile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from weft.app.serve.live import ALL, Driver, JobRecord
from weft.core.model import JobId
from weft.service.auth import Caller
from weft.service.context import PROBLEMS, Anyone, Context, Refused, Service
from weft.service.describe import name_of
from weft.service.json_body import Json
from weft.service.responses import Accounts, Tenant, Used

router = APIRouter(tags=["accounting"], responses=PROBLEMS)

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
COLUMNS = [one.name for one in fields(Used)]
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@router.get("/accounting", response_model=Accounts, responses=TABLE)
async def accounting(
    service: Service,
    who: Anyone,
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    since: Annotated[Time, Query(description="Jobs handed in, and days, from here on.")] = 0.0,
    until: Annotated[Time, Query(description="And before this; whole days are counted.")] = LATEST,
    limit: Annotated[int, Query(ge=0, le=MOST, description="Jobs of a page.")] = 100,
    after: Annotated[str | None, Query(max_length=160, description="The `next` of a page.")] = None,
) -> Response:
    """GPU-seconds of tenants by whole days (UTC), and of their jobs a page at a time.

    Tenants' sums hold what jobs used that are forgotten by now. CSV has every job, in parts.
    """
    if form == "csv":
        rows = _csv(service, who, since, until)
        return StreamingResponse(rows, media_type="text/csv; charset=utf-8")
    driver = service.driver
    now = driver.now
    seen = sorted(driver.ledger.used(now, since, until).items())
    tenants = [
        Tenant(tenant=name, jobs=one.jobs, gpu_seconds=one.gpu_s)
        for name, one in seen
        if who.everywhere or name == who.tenant
    ]
    names = list(islice(_chosen(service, who, since, until, after), limit + 1))
    following = names[limit - 1] if limit and len(names) > limit else None
    jobs = [_used(driver, driver.ledger.jobs[name], now) for name in names[:limit]]
    return Json(Accounts(now=now, tenants=tenants, jobs=jobs, next=following))


async def _csv(service: Context, who: Caller, since: float, until: float) -> AsyncIterator[str]:
    """A row a job, with time for others between parts."""
    yield as_csv([COLUMNS])
    last: str | None = None
    while True:
        now = service.driver.now
        names = list(islice(_chosen(service, who, since, until, last), PART))
        records = [service.driver.ledger.jobs[name] for name in names]
        yield as_csv(_cells(_used(service.driver, one, now)) for one in records)
        if len(names) < PART:
            return
        last = names[-1]
        await asyncio.sleep(PAUSE_S)


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as a spreadsheet reads them. What it would take for a formula begins with a quote."""
    out = io.StringIO()
    csv.writer(out).writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cells(row: Used) -> list[Any]:
    return [getattr(row, name) for name in COLUMNS]


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _chosen(
    service: Context, who: Caller, since: float, until: float, after: str | None
) -> Iterator[JobId]:
    """Jobs of the caller's that were handed in then, in order of submission."""
    ledger = service.driver.ledger
    whose = ALL if who.everywhere else who.tenant
    last = None if after is None else JobId(after)
    if last is not None and (last not in ledger.jobs or not who.sees(ledger.jobs[last].job)):
        raise Refused(422, "`after` is not the `next` of a page", "start without it", "after")
    found = ledger.index.after(last, tenant=whose, since=since, when=ledger.when)
    return takewhile(lambda name: ledger.jobs[name].submitted < until, found)


def _used(driver: Driver, record: JobRecord, now: float) -> Used:
    return Used(
        id=record.job.id,
        name=name_of(record.job),
        tenant=record.job.tenant,
        user=record.job.user,
        state=record.outcome or driver.job(record.job.id).state or "unknown",
        submitted=record.submitted,
        started=record.started,
        ended=record.ended,
        restarts=record.restarts,
        gpu_seconds=record.gpu_s.at(now),
    )
