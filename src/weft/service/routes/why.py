"""Why and what if: explanations, plans and comparisons, worked out beside the driver."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from weft.app.insight.changes import Changes
from weft.app.insight.explain import Advice, Front, explain, plan
from weft.app.insight.history import read_speeds
from weft.app.insight.present import Estimate, Present
from weft.app.insight.what_if import HOUR, MOST_JOBS, Compared, Variant, what_if
from weft.app.serve.live import JobRecord, check_job, without_wrappers
from weft.core.cluster import Cluster
from weft.core.errors import UnknownName, WeftError
from weft.core.model import Job
from weft.core.reasons import Blocker, Reason
from weft.core.registry import read_spec
from weft.service.auth import Caller
from weft.service.context import PROBLEMS, Anyone, Context, Refused, Service, Writer, find_job
from weft.service.describe import Describer, name_of, state_word
from weft.service.json_body import Json
from weft.service.plan_responses import Moved, Planned
from weft.service.responses import (
    Ahead,
    Change,
    Comparison,
    Explanation,
    Outlook,
    Start,
)
from weft.service.routes.admin import Amount, Limited, Weight, count_held_by_tenant
from weft.service.routes.jobs import read_jobs
from weft.service.schemas import JobFile, PolicySpec, PolicyText, Word, describe_policy
from weft.service.strict import Strict

router = APIRouter(tags=["why"], responses=PROBLEMS)

OVER_QUOTA = (Blocker.QUOTA, Blocker.TOO_LARGE, Blocker.SHARE, Blocker.GUARANTEE)


class ResizedJob(Strict):
    """A job at another size."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    gpus: Annotated[int, Field(ge=1, le=1_000_000)]


class Changed(Strict):
    """What is different: at least one of these. `nodes` are more machines, such as `2x8:a100`."""

    policy: PolicyText | PolicySpec | None = None
    limits: dict[Limited, Amount] = Field(default_factory=dict, max_length=1000)
    weights: dict[Word, Weight] = Field(default_factory=dict, max_length=1000)
    nodes: Annotated[str, Field(max_length=500)] = ""
    jobs: list[ResizedJob] = Field(default_factory=list, max_length=100)


class WhatIf(Changed):
    """The same, from what: the jobs of the log, of the last `hours`, or what there is now."""

    start: Literal["history", "now"] = "history"
    hours: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None


class PlanIf(Strict):
    """A job to plan, where something is different."""

    job: JobFile
    change: Changed


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
    more = _others_changes(service, record.job, waits)
    why = await service.work_aside(lambda: explain(present, record.job.id, waits, more))
    advice = why.advice
    answer = replace(
        answer,
        reason="; ".join(filter(None, (why.reason, _why_moved(record)))),
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
    return Json(await _plan(body, service, who, Changes()))


@router.post("/plan/what-if", response_model=Planned)
async def plan_job_if(body: PlanIf, service: Service, who: Writer) -> Json:
    """What would happen to this job now if something were different; nothing is queued."""
    return Json(await _plan(body.job, service, who, _change(service, who, body.change)))


async def _plan(body: JobFile, service: Context, who: Caller, change: Changes) -> Planned:
    job = read_jobs(body, service, who)[0]  # the first of a sweep
    if job.id in service.driver.scheduler.state.table:
        raise Refused(409, f"there is a job {job.id!r} already", "leave the id out", "id")
    service.driver.engine.check(job)
    check_job(job, change.cluster(Cluster(tuple(node for node, _ in service.driver.nodes()))))
    present = Present.of(service.driver.scheduler, service.driver.now)
    rules, policy = service.live.quotas, service.live.policy
    trial = await service.work_aside(lambda: plan(change.present(present, policy, rules), job))
    return Planned(
        starts_now=trial.allocation is not None,
        allocation=Describer(service.driver).allocation(trial.allocation),
        displaces=[
            _ahead(who, Front(one, float(one.demand.gpus), running=True)) for one in trial.displaces
        ],
        reason=trial.reason,
        start=_start(trial.start),
        moves=[_moved(who, job, text) for job, text in trial.moves],
    )


@router.post("/what-if", response_model=Comparison)
async def compare(body: WhatIf, service: Service, who: Anyone) -> Json:
    """The log's jobs, or those there are now, simulated as things are and with a change."""
    change = _change(service, who, body)
    if not change:
        raise Refused(422, "nothing is different", "name a policy, limits, nodes or a job")
    if body.start == "now":
        return Json(await _outlook(service, who, change))
    if not who.everywhere:
        raise Refused(403, "the past holds all tenants' jobs", "ask an admin, or start from now")
    rules, named = service.live.quotas, service.live.policy
    cluster, now = service.driver.scheduler.state.cluster, service.driver.now
    variants = {
        named.text: Variant(service.driver.policy, cluster),
        change.label(named.text): Variant(
            change.around(named, rules), change.cluster(cluster), change
        ),
    }
    jobs = service.driver.ledger.jobs
    since = 0.0 if body.hours is None else now - body.hours * HOUR
    read = jobs.pager(MOST_JOBS, after=jobs.following - MOST_JOBS - 1, since=since)

    def work() -> Compared:
        speeds = read_speeds(service.live.store)
        return what_if(read(), variants, now, hours=body.hours, speeds=speeds)

    try:
        found = await service.work_aside(work)
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


async def _outlook(service: Context, who: Caller, change: Changes) -> Comparison:
    """When the caller's jobs start and end from here, as things are and with the change."""
    present = Present.of(service.driver.scheduler, service.driver.now)
    rules, named = service.live.quotas, service.live.policy
    try:
        before, after = await service.work_aside(
            lambda: (present.outlook(), change.present(present, named, rules).outlook()),
        )
    except WeftError as error:
        raise Refused(409, error.what, error.hint) from error
    jobs = {job.id: job for job in present.table.jobs}
    looks = [
        Outlook(
            id=name,
            name=name_of(jobs[name]),
            start=_start(before[name].start),
            start_then=_start(after[name].start),
            end=_start(before[name].end),
            end_then=_start(after[name].end),
        )
        for name in before
        if who.sees(jobs[name])
    ]
    labels = (named.text, change.label(named.text))
    means = {
        label: {
            "avg_start_h": _mean_h([one.start for one in found.values()]),
            "avg_end_h": _mean_h([one.end for one in found.values()]),
        }
        for label, found in zip(labels, (before, after), strict=True)
    }
    note = f"{len(jobs)} jobs simulated from now on; speeds as they reported, else by GPUs"
    return Comparison(policies=means, jobs=len(jobs), hours=0.0, note=note, outlook=looks)


def _mean_h(found: list[Estimate]) -> float | None:
    """The mean over jobs of the median over simulations; None where not all came to it."""
    middles = [one.quantile(0.5) for one in found]
    known = [one for one in middles if one is not None]
    return sum(known) / len(known) / 3600.0 if known and len(known) == len(middles) else None


def _change(service: Context, who: Caller, told: Changed) -> Changes:
    """What was asked for, checked."""
    try:
        asked = None
        if told.policy is not None:
            asked = without_wrappers(read_spec("policy", describe_policy(told.policy)))
        sizes = {str(service.names.find(one.id, who)): one.gpus for one in told.jobs}
        change = Changes(asked, dict(told.limits), dict(told.weights), told.nodes, sizes)
        change.around(service.live.policy, service.live.quotas)
        change.cluster(service.driver.scheduler.state.cluster)
    except UnknownName as error:
        raise Refused(422, error.what, error.hint, "policy") from error
    return change


def _others_changes(service: Context, job: Job, waits: Reason | None) -> list[Advice]:
    """What an admin could do: use a drained machine again, or raise a quota."""
    found = []
    for node, word in service.driver.nodes():
        if word == "drained" and (not job.demand.kinds or node.kind in job.demand.kinds):
            text = f"use node {node.id} again (`weft undrain {node.id}`)"
            found.append(
                Advice(text, {"undrain": node.id}, job, partial(Present.having, node=node))
            )
    if waits is not None and waits.blocker in OVER_QUOTA:
        held = count_held_by_tenant(service.driver)[job.tenant]
        limit = held + job.demand.min * job.demand.share
        change = Changes(limits={job.tenant: limit})
        rules, named = service.live.quotas, service.live.policy
        text = f"a quota of {limit:g} GPUs (`weft quota set {job.tenant} --gpus {limit:g}`)"
        raised = partial(change.present, policy=named, rules=rules)
        found.append(Advice(text, {"limits": {job.tenant: limit}}, job, raised))
    return found


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


def _why_moved(record: JobRecord) -> str:
    """Why a job that runs is not where it was."""
    moved = record.allocation is not None and record.blocker is Blocker.MOVED
    return record.said if moved else ""


def _moved(who: Caller, job: Job, text: str) -> Moved:
    mine = who.sees(job)
    return Moved(
        id=job.id if mine else "",
        name=name_of(job) if mine else "another tenant's job",
        text=text,
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
