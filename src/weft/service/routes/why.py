"""Why and what if: explanations, plans and comparisons, worked out beside the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, TypeVar

from fastapi import APIRouter
from pydantic import Field

from weft.app.insight.explain import Front, explain, plan
from weft.app.insight.present import Estimate, Present
from weft.app.insight.what_if import what_if
from weft.app.serve.live import without_wrappers
from weft.core.errors import UnknownName, WeftError
from weft.core.model import Job
from weft.core.registry import build, read_spec
from weft.service.auth import Caller
from weft.service.context import PROBLEMS, Anyone, Context, Refused, Service, Writer, find_job
from weft.service.describe import Describer, name_of, state_word
from weft.service.json_body import Json
from weft.service.responses import Ahead, Change, Comparison, Explanation, Planned, Start
from weft.service.routes.jobs import read_jobs
from weft.service.schemas import JobFile, PolicySpec, PolicyText, Strict, describe_policy

router = APIRouter(tags=["why"], responses=PROBLEMS)

T = TypeVar("T")


class WhatIf(Strict):
    """Another policy, and how much of the past."""

    policy: PolicyText | PolicySpec
    hours: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None


@router.get("/jobs/{job_id}/explain", response_model=Explanation)
async def explain_job(job_id: str, service: Service, who: Anyone) -> Json:
    """Why a job waits or holds what it holds, what would start it, and when it may start."""
    status = find_job(service, who, job_id)
    record = status.record
    describe = Describer(service.driver)
    answer = Explanation(
        id=record.job.id,
        state=state_word(status),
        reason=record.reason or f"it has {status.state}",
        holds=describe.allocation(record.allocation),
    )
    if record.outcome or record.job.id not in service.driver.scheduler.state.table:
        return Json(answer)
    present = Present.of(service.driver.scheduler, service.driver.now)
    waits = describe.waits_for(status)
    why = await _aside(service, lambda: explain(present, record.job.id, waits))
    advice = why.advice
    answer = replace(
        answer,
        reason=why.reason,
        blocked_by="" if waits is None else waits.blocker.value,
        numbers=dict(why.numbers),
        ahead=[_ahead(who, one) for one in why.ahead],
        start=_start(why.start),
        cheapest_change=None
        if advice is None
        else Change(text=advice.text, fields=dict(advice.fields)),
    )
    return Json(answer)


@router.post("/plan", response_model=Planned)
async def plan_job(body: JobFile, service: Service, who: Writer) -> Json:
    """What would happen to this job now; nothing is queued."""
    job = read_jobs(body, service, who)[0]  # the first of a sweep
    if job.id in service.driver.scheduler.state.table:
        raise Refused(409, f"there is a job {job.id!r} already", "leave the id out", "id")
    service.live.check(job)
    present = Present.of(service.driver.scheduler, service.driver.now)
    trial = await _aside(service, lambda: plan(present, job))
    return Json(
        Planned(
            starts_now=trial.allocation is not None,
            allocation=Describer(service.driver).allocation(trial.allocation),
            displaces=[
                _ahead(who, Front(one, float(one.demand.gpus), running=True))
                for one in trial.displaces
            ],
            reason=trial.reason,
            start=_start(trial.start),
        )
    )


@router.post("/what-if", response_model=Comparison)
async def compare(body: WhatIf, service: Service, who: Anyone) -> Json:
    """The jobs of the log replayed in the simulator, as now and under another policy."""
    if not who.everywhere:
        raise Refused(403, "the past holds all tenants' jobs", "ask an admin")
    rules = service.live.quotas
    try:
        asked = without_wrappers(read_spec("policy", describe_policy(body.policy)))
        build("policy", rules.around(asked))
    except UnknownName as error:
        raise Refused(422, error.what, error.hint, "policy") from error
    policies = {
        service.live.policy.text: service.driver.policy,
        asked.text: rules.around(asked),
    }
    records = list(service.driver.ledger.jobs.values())
    cluster, now = service.driver.scheduler.state.cluster, service.driver.now
    try:
        found = await _aside(
            service, lambda: what_if(records, cluster, policies, now, hours=body.hours)
        )
    except WeftError as error:
        raise Refused(409, error.what, error.hint) from error
    return Json(
        Comparison(
            policies={name: dict(values) for name, values in found.policies.items()},
            jobs=found.jobs,
            hours=found.hours,
            note=found.note,
        )
    )


async def _aside(service: Context, work: Callable[[], T]) -> T:
    """Beside the loop and one at a time: decisions go on meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(service.aside, work)


def _ahead(who: Caller, one: Front) -> Ahead:
    job: Job = one.job
    mine = who.sees(job)
    return Ahead(
        id=job.id if mine else "",
        name=name_of(job) if mine else "another tenant's job",
        tenant=job.tenant if mine else "",
        state="running" if one.running else "waiting",
        gpus=one.gpus,
    )


def _start(found: Estimate | None) -> Start | None:
    if found is None or all(one is None for one in found.after):
        return None  # too far away to be simulated
    return Start(
        p10=found.quantile(0.1),
        p50=found.quantile(0.5),
        p90=found.quantile(0.9),
        simulations=len(found.after),
    )
