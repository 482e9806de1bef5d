"""Many jobs in one request: all of them are taken, or none."""

from __future__ import annotations

import asyncio
from itertools import groupby
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job, priority_word
from weft.service.access.rate_limit import check_jobs
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Context, Service, Writer
from weft.service.http.replies import HttpProblem, Json
from weft.service.jobs.awaited_jobs import AwaitedJobs
from weft.service.requests.fields import RequestBody
from weft.service.requests.job_file import GUARANTEED, JobFile
from weft.service.responses.answers import MadeAll
from weft.service.routes.jobs import jobs as single

router = APIRouter(prefix=PREFIX, tags=["jobs"], responses=PROBLEMS)

MOST = 500
PART = 25  # jobs that are read before others have their turn: some 2 ms


class JobBatch(RequestBody):
    """Independent jobs; to run one job with several parameters, use a sweep."""

    jobs: Annotated[list[JobFile], Field(min_length=1, max_length=MOST, fail_fast=True)]


@router.post("/jobs/batch", status_code=201, response_model=MadeAll)
async def submit_batch(body: JobBatch, request: Request, service: Service, who: Writer) -> Json:
    """Submit up to 500 jobs at once. All are on disk when the answer is sent, or none is queued.

    A job that was submitted before, with the same id and body, or in a request of the same header
    `Idempotency-Key`, is not submitted again.
    """
    single.check_user_known(service)
    for number, asked in enumerate(body.jobs):
        if asked.sweep is not None:
            raise HttpProblem(
                422, "a sweep in a batch", "submit it on its own", f"jobs.{number}.sweep"
            )
    key = single.key_of(request)
    jobs: list[Job] = []
    fresh: list[Job] = []
    awaited = AwaitedJobs(service.names, who)
    for number, asked in enumerate(body.jobs):
        job, known = await _read(asked, number, service, who, awaited, key and f"{key} {number}")
        jobs.append(job)
        fresh += [] if known else [job]
        if len(jobs) % PART == 0:
            await asyncio.sleep(0.0)
    request.state.about = f"{len(jobs)} jobs"  # for the audit log
    by_tenant = attrgetter("tenant")
    for tenant, group in groupby(sorted(fresh, key=by_tenant), by_tenant):
        theirs = list(group)
        first = [job for job in theirs if priority_word(job) == GUARANTEED]
        single.check_guaranteed(first, service, who)
        single.check_notify(theirs, service)
        check_jobs(service.limits, theirs, single.active_of(service.driver, tenant), who)
    if fresh:
        await service.driver.submit(*fresh)
        service.names.catch_up()
    return Json(MadeAll(jobs=[job.id for job in jobs]), status_code=201)


async def _read(
    asked: JobFile, number: int, service: Context, who: Caller, awaited: AwaitedJobs, key: str
) -> tuple[Job, bool]:
    """One job of a batch, and whether it was submitted before; a refusal says which it is."""
    try:
        [job] = single.read_jobs(asked, service, who, await awaited.resolve_after(asked), key)
        known = single.is_known(job, service, who)
        if not known:
            service.live.check(job)
    except HttpProblem as error:
        error.field = ".".join(filter(None, ("jobs", str(number), error.field)))
        raise
    except InvalidConfig as error:
        raise HttpProblem(422, error.what, error.hint, f"jobs.{number}") from error
    return job, known
