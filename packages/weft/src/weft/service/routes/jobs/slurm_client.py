"""Batch jobs that persons' own clients submit: what is to be done, and what was."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from weft.core.batch_work import BatchWorks
from weft.core.errors import WeftError
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Context, Service, Writer
from weft.service.http.replies import HttpProblem, Json
from weft.service.requests.fields import RequestBody
from weft.service.responses.answers import BatchJobs, BatchJobToSubmit, Done, FoldersToMake

router = APIRouter(prefix=PREFIX, tags=["batch jobs"], responses=PROBLEMS)


class BatchReport(RequestBody):
    """The outcome of an offer: the batch job's `number`, or why there is none."""

    secret: Annotated[str, Field(min_length=1, max_length=64)]
    number: Annotated[str, Field(pattern=r"^[0-9]{0,12}$")] = ""
    refusal: Annotated[str, Field(max_length=2000)] = ""


@router.post("/batch-jobs/take", response_model=BatchJobs)
async def take_batch_jobs(service: Service, who: Writer) -> Json:
    """Batch jobs that the caller's client is to submit and to end now, and how many have not ended.

    An offer goes to one client, which reports within a minute what happened to it.
    """
    account, works = find_works(service, who)
    try:
        work = works.claim_work(account)
    except WeftError as error:
        raise HttpProblem(403, error.what, error.hint) from error
    make = [FoldersToMake(secret=wish.secret, folders=[*wish.folders]) for wish in work.make]
    offers = [BatchJobToSubmit(secret=offer.secret, script=offer.script) for offer in work.submit]
    left = service.driver.ledger.jobs.active_of[who.tenant]
    return Json(BatchJobs(make=make, submit=offers, cancel=list(work.cancel), left=left))


@router.post("/batch-jobs/report", response_model=Done)
async def report_batch_job(
    body: BatchReport, request: Request, service: Service, who: Writer
) -> Json:
    """A batch job was submitted, or refused. It counts once Slurm shows that it is the one offered.

    409: it does not, and is to be ended.
    """
    account, works = find_works(service, who)
    request.state.about = body.number
    try:
        why = await works.report(account, body.secret, body.number, body.refusal)
    except WeftError as error:
        raise HttpProblem(503, error.what, error.hint) from error
    if why:
        raise HttpProblem(409, why, "")
    return Json(Done(done=f"batch job {body.number}" if body.number else "refused"))


def find_works(service: Context, who: Caller) -> tuple[str, BatchWorks]:
    """The account of the client that asks, and the work for clients.

    Refused where there is none.
    """
    works = service.driver.engine.batch_works
    if works is None:
        raise HttpProblem(
            404,
            "no client submits batch jobs here",
            "see --engine slurm:submit_as=client of `weft serve`",
        )
    return who.account or who.tenant, works
