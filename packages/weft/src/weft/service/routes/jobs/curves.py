"""Metrics of jobs and sweeps: what their programs measured of themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from weft.core.model.job import name_of
from weft.runtime.records.job_records import ALL, JobRecord
from weft.runtime.records.metrics import CURVE, Series
from weft.runtime.records.status import JobStatus, status_of
from weft.service.access.redaction import mask, mask_all, secrets_of
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service, find_job
from weft.service.http.replies import HttpProblem, Json
from weft.service.jobs.job_view import state_word
from weft.service.responses.job_row import JobCurves, MetricCurve, SweepCurves
from weft.service.routes.jobs.jobs import find_page_start
from weft.service.routes.people.accounting import as_csv

router = APIRouter(prefix=PREFIX, tags=["jobs"], responses=PROBLEMS)

MOST_JOBS = 200
MOST_POINTS = 50_000  # of one answer; the rest is on the next page
CSV = "text/csv; charset=utf-8"
COLUMNS = ("job", "metric", "step", "value", "at")
Names = Annotated[
    list[str], Query(alias="name", max_length=64, description="These alone; default: all.")
]
Format = Annotated[Literal["json", "csv"], Query(alias="format")]
Points = Annotated[int, Query(ge=2, le=CURVE, description="Points of each curve, at most.")]


@router.get("/jobs/{job_id}/metrics", response_model=JobCurves)
async def job_metrics(
    job_id: str,
    service: Service,
    who: Anyone,
    names: Names = [],  # noqa: B006 - as FastAPI reads it
    form: Format = "json",
    points: Points = CURVE,
) -> Response:
    """Metrics that the program of a job measured of itself, over its steps."""
    curves = _curves(find_job(service, who, job_id), names, points)
    if form == "csv":
        return Response(as_csv([COLUMNS, *_rows([curves])]), media_type=CSV)
    return Json(curves)


@router.get("/sweeps/{sweep_id}/metrics", response_model=SweepCurves)
async def sweep_metrics(
    sweep_id: str,
    service: Service,
    who: Anyone,
    names: Names = [],  # noqa: B006 - as FastAPI reads it
    form: Format = "json",
    points: Points = 60,
    limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = MOST_JOBS,
    after: Annotated[str | None, Query(max_length=64, description="The `next` of a page.")] = None,
) -> Response:
    """Metrics that the jobs of a sweep measured of themselves, a page at a time."""
    app = service.names.find_app(sweep_id, who)
    if app is None:
        raise HttpProblem(404, f"no sweep is called {sweep_id!r}", "`weft jobs` shows them")
    records = await _jobs_of(service, who, app, after, limit + 1)
    known, trouble = service.driver.scheduler.state, service.searches_over.get(app, "")
    statuses = [status_of(each, known) for each in records[:limit]]

    def write() -> Response:
        jobs = [*_page(statuses, names, points)]
        following = records[len(jobs) - 1].job.id if len(records) > len(jobs) else None
        if form == "csv":
            return Response(as_csv([COLUMNS, *_rows(jobs)]), media_type=CSV)
        terms = _terms(records)
        return Json(SweepCurves(id=app, jobs=jobs, next=following, trouble=trouble, **terms))

    return await service.read(write)  # of many points: it takes longer than others should wait


async def _jobs_of(
    service: Context, who: Caller, app: str, after: str | None, limit: int
) -> list[JobRecord]:
    jobs = service.driver.ledger.jobs
    last = find_page_start(jobs, who, after)
    whose = ALL if who.everywhere else who.tenant
    return await service.read(jobs.page_reader(limit, after=last, tenant=whose, app=app))


def _terms(records: Sequence[JobRecord]) -> dict[str, Any]:
    """The metric by which a sweep's search compares its trials, and which values are better."""
    launch = records[0].job.launch if records else None
    if launch is None or launch.search is None or not launch.search.metric:
        return {}
    return {"metric": launch.search.metric, "goal": "max" if launch.search.maximize else "min"}


def _page(
    statuses: Sequence[JobStatus], names: Collection[str], points: int
) -> Iterator[JobCurves]:
    """The curves of the first jobs, until one answer has enough points."""
    left = MOST_POINTS
    for status in statuses:
        if left <= 0:
            return
        yield (curves := _curves(status, names, points))
        left -= sum(len(curve.steps) for curve in curves.metrics)


def _curves(status: JobStatus, names: Collection[str], points: int) -> JobCurves:
    record = status.record
    job, metrics = record.job, record.metrics
    secrets = secrets_of(job)
    return JobCurves(
        id=job.id,
        name=name_of(job),
        state=state_word(status),
        parameters=mask_all(dict(job.launch.parameters), secrets) if job.launch else {},
        metrics=[
            _curve(mask(name, secrets), series, points)
            for name, series in metrics.series.items()
            if not names or name in names
        ],
        left_out=metrics.left_out,
    )


def _curve(name: str, series: Series, points: int) -> MetricCurve:
    shown = thin(series.curve(), points)
    return MetricCurve(
        name=name,
        count=series.count,
        step=series.step,
        value=series.value,
        least=series.least,
        least_step=series.least_step,
        most=series.most,
        most_step=series.most_step,
        steps=[step for step, _, _ in shown],
        values=[value for _, value, _ in shown],
        at=[at for _, _, at in shown],
    )


def thin(curve: Sequence[Any], points: int) -> list[Any]:
    """At most that many of the points, evenly, with the first and the last."""
    if len(curve) <= points:
        return [*curve]
    part = (len(curve) - 1) / (points - 1)
    return [curve[round(i * part)] for i in range(points)]


def _rows(jobs: Sequence[JobCurves]) -> Iterator[Sequence[Any]]:
    for job in jobs:
        for curve in job.metrics:
            for row in zip(curve.steps, curve.values, curve.at, strict=True):
                yield (job.id, curve.name, *row)
