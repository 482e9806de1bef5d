"""Who used how much: JSON, and CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from weft.app.serve.live import Driver, JobRecord
from weft.service.auth import Caller
from weft.service.context import PROBLEMS, Anyone, Service
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
    return Json(Accounts(now=now, tenants=_by_tenant(rows), jobs=rows))


def as_csv(rows: list[Used]) -> str:
    """A row a job. What a spreadsheet would take for a formula begins with a quote."""
    out = io.StringIO()
    writer = csv.writer(out)
    names = [one.name for one in fields(Used)]
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return out.getvalue()


def _by_tenant(rows: list[Used]) -> list[Tenant]:
    jobs: Counter[str] = Counter()
    used: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        jobs[row.tenant] += 1
        used[row.tenant] += row.gpu_seconds
    return [Tenant(tenant=one, jobs=jobs[one], gpu_seconds=used[one]) for one in jobs]


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _used(driver: Driver, who: Caller, now: float, since: float) -> Iterator[Used]:
    for record in driver.ledger.jobs.values():
        if who.sees(record.job) and record.submitted >= since:
            yield Used(
                id=record.job.id,
                name=name_of(record.job),
                tenant=record.job.tenant,
                user=record.job.user,
                state=_state(driver, record),
                submitted=record.submitted,
                started=record.started,
                ended=record.ended,
                restarts=record.restarts,
                gpu_seconds=record.gpu_s.at(now),
            )


def _state(driver: Driver, record: JobRecord) -> str:
    return record.outcome or driver.job(record.job.id).state or "unknown"
