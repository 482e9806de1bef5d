"""Jobs: submit, list, look at, cancel, suspend, resume, another priority."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query, Request, Response

from weft.app.insight.counted_start import warn_of_failure
from weft.app.search.optuna_sampler import check_installed
from weft.core.events.event import Measured, Reported
from weft.core.model.job import PRIORITIES, After, Job, JobId, PriorityWord, priority_word
from weft.core.model.search import SearchKind
from weft.core.plan.reasons import device_word
from weft.core.stops import Rung
from weft.plural import say_gpus
from weft.runtime.loop.driver import Driver
from weft.runtime.loop.job_commands import loses_work, resume, set_priority, suspend
from weft.runtime.records.job_records import ALL, ENDED, JobRecords
from weft.runtime.records.sleep_records import describe_sleep
from weft.runtime.records.status import JobStatus, status_of, words_but_pending
from weft.service.access.rate_limit import check_jobs
from weft.service.access.redaction import secrets_of
from weft.service.access.tokens import Caller
from weft.service.budget.sizes import check_sweep
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service, Writer, find_job
from weft.service.http.replies import HttpProblem, Json, write_json
from weft.service.jobs.arguments import arguments_of
from weft.service.jobs.awaited_jobs import AwaitedJobs
from weft.service.jobs.job_names import own_id
from weft.service.jobs.job_view import JobView
from weft.service.requests.fields import RequestBody
from weft.service.requests.job_file import (
    DEFAULT_TENANT,
    GUARANTEED,
    JobFile,
    expand,
    job_of,
    name_of,
    new_id,
    search_of,
    with_priority,
)
from weft.service.responses.answers import Done, Events, JobAnswer, JobList, Made
from weft.service.responses.job_row import StateWord
from weft.service.streams.event_json import event_json

router = APIRouter(prefix=PREFIX, tags=["jobs"], responses=PROBLEMS)

MOST = 1000
ReportWord = Literal["Reported", "Measured"]
REPORTS: dict[ReportWord, type] = {"Reported": Reported, "Measured": Measured}
KEY, LONGEST_KEY = "Idempotency-Key", 200
STATES: tuple[str, ...] = get_args(StateWord)
NO_APP = "*"  # no app is called so
PART, SHORT = 25, 100  # of a page at a time: some 1 ms


@router.post("/jobs", status_code=201, response_model=Made)
async def submit(body: JobFile, request: Request, service: Service, who: Writer) -> Json:
    """Submit a job, or all jobs of a sweep. They are on disk when the answer is sent.

    With the same id and body, or the same header `Idempotency-Key` and body, once only.
    """
    return await accept_job(body, request, service, who)


async def accept_job(body: JobFile, request: Request, service: Context, who: Caller) -> Json:
    """The answer to a job file, once its jobs are on disk."""
    check_user_known(service)
    check_sweep(body)
    jobs = []
    after = await AwaitedJobs(service.names, who).resolve_after(body)
    for job in read_jobs(body, service, who, after, key_of(request)):
        jobs.append(job)
        if len(jobs) % PART == 0:
            await asyncio.sleep(0.0)  # a sweep of a thousand takes 60 ms
    request.state.about = jobs[0].id if body.sweep is None else jobs[0].app  # for the audit log
    await submit_checked(jobs, service, who)
    scheduler = service.driver.scheduler
    device = device_word(scheduler.state.cluster.kinds)
    warning = warn_of_failure(scheduler.knowledge.predictor, jobs[0], device)
    made = Made(
        id=jobs[0].id if body.sweep is None else jobs[0].app,
        jobs=[] if body.sweep is None else [job.id for job in jobs],
        warning=warning,
        by_client=service.driver.engine.batch_works is not None,
    )
    return Json(made, status_code=201)


async def submit_checked(jobs: Sequence[Job], service: Context, who: Caller) -> None:
    """Put jobs of one tenant that are not known yet on disk, if they may and can run."""
    fresh = [job for job in jobs if not is_known(job, service, who)]
    check_guaranteed(fresh, service, who)
    check_notify(fresh, service)
    check_jobs(service.limits, fresh, active_of(service.driver, jobs[0].tenant), who)
    for job in fresh:
        service.live.check(job)  # all of them before the first is submitted
    if fresh:
        await service.driver.submit(*fresh)
        service.names.catch_up()


def is_known(job: Job, service: Context, who: Caller) -> bool:
    """True if this very job was submitted before; refused if another one has its id."""
    known = service.driver.ledger.jobs.get(job.id)
    if known is None:
        return False
    if not who.commands(known.job) or not _same(known.handed_in, job):
        raise HttpProblem(409, f"there is a job {job.id!r} already", "choose another id", "id")
    return True


@router.get("/jobs", response_model=JobList)
async def list_jobs(
    service: Service,
    who: Anyone,
    state: Annotated[
        str, Query(max_length=200, description=f"One or more, by commas: {', '.join(STATES)}.")
    ] = "",
    tenant: Annotated[str | None, Query(max_length=64)] = None,
    app: Annotated[str | None, Query(max_length=160, description="A sweep or app.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
    after: Annotated[str | None, Query(max_length=64, description="The `next` of a page.")] = None,
) -> Response:
    """Jobs in order of submission, a page at a time."""
    name = None if app is None else service.names.find_app(app, who) or NO_APP
    statuses = await _choose(service, who, read_states(state), tenant, name, after, limit + 1)
    following = statuses[limit - 1].record.job.id if len(statuses) > limit else None
    parts: list[bytes] = []
    for start in range(0, min(limit, len(statuses)), PART):
        began = time.perf_counter()
        job_view = JobView(service.driver)
        some = [
            job_view.describe_job(status) for status in statuses[start : min(start + PART, limit)]
        ]
        parts.append(write_json(some)[1:-1])
        # As long as it took for others, once it is a long page.
        await asyncio.sleep(time.perf_counter() - began if start >= SHORT else 0.0)
    body = b'{"jobs":[%b],"next":%b}' % (b",".join(parts), write_json(following))
    return Response(body, media_type=Json.media_type)


@router.get("/jobs/{job_id}", response_model=JobAnswer)
async def one_job(job_id: str, service: Service, who: Anyone) -> Json:
    """One job, ended or not."""
    status = find_job(service, who, job_id)
    answer = JobView(service.driver).describe_job(status)
    job = status.record.job
    pids = service.driver.engine.pids(job.id, status.record.attempt)
    arguments = arguments_of(job.launch, secrets_of(job))
    return Json(replace(answer, pids=list(pids.values()), arguments=arguments))


@router.delete("/jobs/{job_id}", status_code=202, response_model=Done)
async def cancel(job_id: str, request: Request, service: Service, who: Writer) -> Json:
    """Cancel a job; a running one gets its grace time. A job that has ended stays as it is."""
    status = find_job(service, who, job_id)
    if not who.commands(status.record.job):
        raise HttpProblem(403, "this job is another tenant's", "ask an admin")
    job = request.state.about = status.record.job.id
    if status.record.outcome:
        text = f"job {job} {_ended_word(status)}: there is nothing to cancel"
        return Json(Done(done=text, changed=False), status_code=202)
    await service.driver.cancel(job)
    return Json(Done(done=f"job {job} is cancelled"), status_code=202)


def _ended_word(status: JobStatus) -> str:
    return "was cancelled before" if status.state == "cancelled" else f"has {status.state}"


@router.get("/jobs/{job_id}/events", response_model=Events)
async def job_events(
    job_id: str,
    service: Service,
    who: Anyone,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 500,
    without: Annotated[
        list[ReportWord],
        Query(max_length=2, description="Left out, so that many of these do not crowd out others."),
    ] = [],  # noqa: B006 - as FastAPI reads it
) -> Json:
    """The latest events of a job in the log, oldest first."""
    record = find_job(service, who, job_id).record
    kinds = [REPORTS[word] for word in without]
    read = partial(service.live.store.about_job, record.job.id, limit, record.ended, kinds)
    rows = await service.read(read)
    events = [event_json(service.driver, who, *row) for row in rows]
    return Json(Events(events=[event for event in events if event is not None]))


def read_jobs(
    body: JobFile, service: Context, who: Caller, after: After, key: str = ""
) -> Iterator[Job]:
    """The jobs that a body describes, as the caller may submit them: one, or those of a sweep.

    `after` is its own, by id: the same value for all of them. Without an id they get the one that
    `key` always gives.
    """
    tenant = body.tenant or (DEFAULT_TENANT if who.everywhere else who.tenant)
    if not who.admin and tenant != who.tenant:
        raise HttpProblem(
            403, f"this token does not belong to tenant {tenant!r}", "leave it out", "tenant"
        )
    asked = own_id(body.id, tenant, who)
    if asked is None and key:
        asked = new_id(name_of(body), _mark(key, tenant, who.name))
    body = body.model_copy(update={"id": asked})
    now, search = service.driver.now, search_of(body)
    if search is not None and search.kind is SearchKind.OPTUNA:
        check_installed()
    for single, values in expand(body, body.id or new_id(name_of(body))):
        job = job_of(
            single,
            tenant=tenant,
            user=who.name,
            account=who.account,
            owner=(single.user or who.name) if who.admin else who.name,
            parameters=values,
            search=search,
        )
        deadline = None if job.deadline is None else now + job.deadline
        yield replace(job, after=after, deadline=deadline)


def key_of(request: Request) -> str:
    """The request's `Idempotency-Key`; empty where it has none."""
    key: str = request.headers.get(KEY, "")
    if len(key) > LONGEST_KEY:
        raise HttpProblem(
            422, f"{KEY} has {len(key)} characters", f"at most {LONGEST_KEY}, such as a UUID", KEY
        )
    return key


def _mark(key: str, tenant: str, user: str) -> str:
    """Characters that only this user's key gives."""
    return sha256("\0".join((tenant, user, key)).encode()).hexdigest()[:16]


def active_of(driver: Driver, tenant: str) -> int:
    """Jobs of a tenant that have not ended, with those on their way to the log."""
    known = driver.ledger.jobs.active
    coming = sum(job.tenant == tenant for job in driver.incoming.values() if job.id not in known)
    return driver.ledger.jobs.active_of[tenant] + coming


def check_user_known(service: Context) -> None:
    """Refuse jobs without a user where every job runs as its user."""
    if service.live.users and not len(service.tokens):
        raise HttpProblem(
            403,
            "jobs run as their tenants' users here, and without a token the user is unknown",
            "make one with `weft token create --role admin`",
        )


def check_notify(jobs: Sequence[Job], service: Context) -> None:
    """Refuse jobs that want their user notified in a way that no admin has set up."""
    hooks = service.hooks.all()
    asked = {
        (job.launch.owner, way): job for job in jobs if job.launch for way in job.launch.notify
    }
    for (owner, way), job in asked.items():
        if not any(hook.wants(job, way) for hook in hooks):
            raise HttpProblem(
                422,
                f"no {way} about jobs that ask for it reaches {owner or 'a token without a name'}",
                "leave it out, or an admin adds one: `weft webhook add URL --on-request`",
                "notify",
            )


def check_guaranteed(jobs: Sequence[Job], service: Context, who: Caller) -> None:
    """Refuse jobs of priority guaranteed beyond what an admin granted to their tenant.

    Jobs that choose first take turns from all others, so no user grants it to themselves.
    """
    if who.admin or not jobs or priority_word(jobs[0]) != GUARANTEED:
        return
    tenant, more = jobs[0].tenant, sum(map(_most, jobs))
    granted = service.live.quotas.guaranteed.get(tenant, 0.0)
    active = {job.id: job for job in service.driver.scheduler.state.table.jobs}
    asked = sum(
        _most(job)
        for job in (active | service.driver.incoming).values()
        if job.tenant == tenant and priority_word(job) == GUARANTEED
    )
    if asked + more > granted + 1e-9:
        raise HttpProblem(
            403,
            f"tenant {tenant!r} is granted {say_gpus(granted)} for guaranteed jobs; "
            f"its jobs ask for {asked:g}, this one for {more:g} more",
            "leave the priority out, wait, or ask an admin for `weft quota set --guaranteed`",
            "priority",
        )


def _most(job: Job) -> float:
    return job.demand.max * job.demand.share


def read_states(text: str) -> frozenset[str]:
    """The states of a list with commas; none for an empty text."""
    states = frozenset(word.strip() for word in text.split(",") if word.strip())
    if unknown := sorted(states.difference(STATES)):
        hint = f"one or more of {', '.join(STATES)}, such as running,pending"
        raise HttpProblem(422, f"a job has no state {unknown[0]!r}", hint, "state")
    return states


async def _choose(
    service: Context,
    who: Caller,
    states: frozenset[str],
    tenant: str | None,
    app: str | None,
    after: str | None,
    limit: int,
) -> list[JobStatus]:
    jobs = service.driver.ledger.jobs
    last = find_page_start(jobs, who, after)
    if not who.everywhere and tenant not in (None, who.tenant):
        return []
    whose = tenant or (ALL if who.everywhere else who.tenant)
    known = service.driver.scheduler.state
    # Both at once: a job that ends before the pages are read is not left out.
    active = _active(service, states.difference(ENDED), whose, app, last, limit)
    pages = [
        jobs.page_reader(limit, after=last, tenant=whose, outcome=outcome, app=app)
        for outcome in (states.intersection(ENDED) if states else [ALL])
    ]
    records = [record for page in pages for record in await service.read(page)]
    statuses = {status.record.number: status for status in active}
    statuses |= {record.number: status_of(record, known) for record in records}
    return [statuses[number] for number in sorted(statuses)[:limit]]


def find_page_start(jobs: JobRecords, who: Caller, after: str | None) -> int:
    """The number of the job that a page follows, if that was one of the caller's; -1 for none."""
    if after is None:
        return -1
    last = jobs.get(JobId(after))
    if last is None or not who.sees(last.job):
        raise HttpProblem(422, "`after` is not the `next` of a page", "start without it", "after")
    return last.number


def _active(
    service: Context, states: Set[str], tenant: str, app: str | None, last: int, limit: int
) -> list[JobStatus]:
    """Jobs in states that are not their last: few, however many there ever were."""
    if not states:
        return []
    jobs = service.driver.ledger.jobs
    words = words_but_pending(jobs, service.driver.scheduler.state)
    names: Iterable[JobId] = jobs.active
    if "pending" not in states:
        names = sorted(words, key=lambda name: jobs.live[name].number)
    statuses = (
        JobStatus(jobs.live[name], words.get(name, "pending"))
        for name in names
        if words.get(name, "pending") in states
        and tenant in (ALL, jobs.active[name])
        and jobs.live[name].number > last
        and app in (None, jobs.live[name].job.app)
    )
    return [*islice(statuses, limit)]


def _same(known: Job, asked: Job) -> bool:
    """True if two jobs differ in nothing but when they were submitted."""
    at = known.submitted
    return replace(known, deadline=None) == replace(asked, submitted=at, deadline=None)


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
    job_id: str, request: Request, service: Service, who: Writer, body: AskSuspend = NO_RESTART
) -> Json:
    """Make a job leave its devices and wait until it is resumed; a waiting job is held.

    It is put to sleep where it is if the engine can, else it saves and leaves. Where it would have
    to start over, the answer is 409 unless `restart` says that it may.
    """
    job = _find(job_id, request, service, who)
    if not body.restart and loses_work(service.driver, job.id):
        raise HttpProblem(
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
        raise HttpProblem(403, "this job is another tenant's", "ask an admin")
    request.state.about = job.id
    if status.record.outcome:
        raise HttpProblem(
            409, f"job {job.id!r} has {_say(status.record.outcome)}", "submit it again instead"
        )
    return job


def _say(outcome: str) -> str:
    return f"been {outcome}" if outcome == "cancelled" else outcome
