"""Jobs that have not ended: suspend, resume, another priority."""

from __future__ import annotations

from fastapi import APIRouter, Request

from weft.core.model.job import Job
from weft.core.model.priorities import PRIORITIES, PriorityWord, priority_word
from weft.core.stops import Rung
from weft.runtime.loop.job_commands import loses_work, resume, set_priority, suspend
from weft.runtime.records.sleep_records import describe_sleep
from weft.service.access.tokens import Caller
from weft.service.context import PROBLEMS, Context, Service, Writer, find_job
from weft.service.http.json_body import Json
from weft.service.http.problems import Refused
from weft.service.requests.job_file import with_priority
from weft.service.requests.request_base import RequestBody
from weft.service.responses.answers import Done
from weft.service.routes.jobs.jobs import check_guaranteed

router = APIRouter(tags=["jobs"], responses=PROBLEMS)


HOW = {
    Rung.FREEZE: "frozen where it is, with its GPU memory; it goes on at once",
    Rung.SUSPEND: "moved to host memory; it goes on where it was",
    Rung.RESTART: "it saves and leaves; it goes on from its last checkpoint",
}


class AskSuspend(RequestBody):
    """With `restart`, suspend the job even if that loses all its work."""

    restart: bool = False


NO_RESTART = AskSuspend()


class AskPriority(RequestBody):
    """The new priority class of a job."""

    priority: PriorityWord


@router.post("/jobs/{job_id}/suspend", status_code=202, response_model=Done)
async def suspend_job(
    job_id: str,
    request: Request,
    service: Service,
    who: Writer,
    body: AskSuspend = NO_RESTART,
) -> Json:
    """Make a job leave its devices and wait until it is resumed; a waiting job is held.

    It is put to sleep where it is if the engine can, else it saves and leaves. Where it would have
    to start over, the answer is 409 unless `restart` says that it may.
    """
    job = _find(job_id, request, service, who)
    if not body.restart and loses_work(service.driver, job.id):
        raise Refused(
            409,
            f"job {job.id!r} has no checkpoint and cannot be put to sleep here: suspending it "
            "would lose all its work",
            "say restart: true (`weft suspend --yes`) if it may start over",
            "restart",
        )
    runs = service.driver.job(job.id).record.running is not None
    by = "its owner" if who.tenant == job.tenant or not who.name else f"admin {who.name!r}"
    rung = await suspend(service.driver, job.id, by)
    how = f": {HOW[rung]}" if runs else ""
    return Json(Done(done=f"job {job.id} is suspended{how}"), status_code=202)


@router.post("/jobs/{job_id}/resume", status_code=202, response_model=Done)
async def resume_job(job_id: str, request: Request, service: Service, who: Writer) -> Json:
    """Let a suspended job continue when there is room: where it sleeps, or from its checkpoint."""
    job = _find(job_id, request, service, who)
    sleeps = describe_sleep(service.driver.scheduler.state, job.id)
    await resume(service.driver, job.id)
    how = f": it was {sleeps}" if sleeps else ""
    return Json(Done(done=f"job {job.id} goes on when there is room{how}"), status_code=202)


@router.put("/jobs/{job_id}/priority", status_code=202, response_model=Done)
async def change_priority(
    job_id: str, body: AskPriority, request: Request, service: Service, who: Writer
) -> Json:
    """Change a job's priority; the next decision takes it into account."""
    job = _find(job_id, request, service, who)
    asked = with_priority(job, body.priority)
    if priority_word(job) != body.priority:
        check_guaranteed([asked], service, who)
    await set_priority(service.driver, job.id, PRIORITIES[body.priority], asked.tier)
    return Json(Done(done=f"job {job.id} is of priority {body.priority}"), status_code=202)


def _find(job_id: str, request: Request, service: Context, who: Caller) -> Job:
    """A job that has not ended and that the caller may change; recorded in the audit log."""
    status = find_job(service, who, job_id)
    job = status.record.job
    if not who.commands(job):
        raise Refused(403, "this job is another tenant's", "ask an admin")
    request.state.about = job.id
    if status.record.outcome:
        raise Refused(
            409, f"job {job.id!r} has {_say(status.record.outcome)}", "submit it again instead"
        )
    return job


def _say(outcome: str) -> str:
    return f"been {outcome}" if outcome == "cancelled" else outcome
