"""Explanations, plans and comparisons, worked out beside the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.explain import Advice, Front, Trial, Why, explain, plan
from weft.app.insight.present import Estimate, Present
from weft.app.insight.what_if import WhatIfChanges
from weft.app.serve.rules import Quotas, without_wrappers
from weft.core.errors import UnknownName
from weft.core.events.event import Foretold
from weft.core.model.job import Job, JobId, name_of
from weft.core.plan.reasons import Blocker, Reason, device_word
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import read_spec
from weft.runtime.loop.admit import check_job
from weft.service.access.tokens import Caller
from weft.service.budget.purse import request_purse
from weft.service.budget.sizes import check_machines, check_sweep
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service, Writer, find_job
from weft.service.http.replies import HttpProblem, Json
from weft.service.jobs.awaited_jobs import AwaitedJobs
from weft.service.jobs.job_view import JobView, state_word
from weft.service.jobs.what_if_work import answer_start
from weft.service.requests.fields import RequestBody, Word
from weft.service.requests.job_file import JobFile, PolicySpec, PolicyText, describe_policy
from weft.service.responses.answers import Ahead, Change, Explanation
from weft.service.responses.watch import Moved, Planned
from weft.service.routes.jobs.jobs import read_jobs
from weft.service.routes.people.admin import Amount, Limited, Weight, count_held_by_tenant
from weft.stack.layers import decided_by
from weft.stack.windows import find_windows

router = APIRouter(prefix=PREFIX, tags=["why"], responses=PROBLEMS)

ANSWER_CPU_S = 0.8  # what is not simulated by then is left out of an answer
MANY_CPU_S = 0.6  # the same of many jobs: to send them takes time besides
COUNT_CPU_S = 1e-5  # of that, for each job: they are counted in any case
MANY = 1_000  # active jobs from which it is asked beforehand what a decision takes
OVER_QUOTA = (Blocker.QUOTA, Blocker.TOO_LARGE, Blocker.SHARE, Blocker.GUARANTEE)
NOT_IN_LINE = (*OVER_QUOTA, Blocker.DEPENDENCY, Blocker.PARALLEL)  # no job ahead delays these


class ResizedJob(RequestBody):
    """A job at another size."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    gpus: Annotated[int, Field(ge=1, le=1_000_000)]


class Changed(RequestBody):
    """Changes: at least one of these. `nodes` adds machines, such as `2x8:a100`."""

    policy: PolicyText | PolicySpec | None = None
    limits: dict[Limited, Amount] = Field(default_factory=dict, max_length=1000)
    weights: dict[Word, Weight] = Field(default_factory=dict, max_length=1000)
    nodes: Annotated[str, Field(max_length=500)] = ""
    jobs: list[ResizedJob] = Field(default_factory=list, max_length=100)


class PlanIf(RequestBody):
    """A job to plan, and what to change."""

    job: JobFile
    change: Changed


@router.get("/jobs/{job_id}/explain", response_model=Explanation)
async def explain_job(job_id: str, service: Service, who: Anyone) -> Json:
    """Explain why a job waits or holds what it holds, what would start it, and when."""
    status = find_job(service, who, job_id)
    record = status.record
    job_view = JobView(service.driver)
    answer = Explanation(
        id=record.job.id,
        state=state_word(status),
        reason=job_view.reason(status) or f"it has {status.state}",
        holds=job_view.allocation(record.allocation),
        device=job_view.device,
    )
    if record.outcome or record.job.id not in service.driver.scheduler.state.table:
        return Json(answer)
    if record.suspended is not None:
        by = _decided_by(service, Blocker.SUSPENDED)
        return Json(replace(answer, blocked_by=Blocker.SUSPENDED.value, decided_by=by))
    driver = service.driver
    windows, correction = find_windows(driver.policy), driver.start_correction()
    present = Present.of(driver.scheduler, driver.now, windows, correction)
    waits = job_view.waits_for(status)
    more = _others_changes(service, record.job, waits)
    many = len(present.table) >= MANY
    left_s = max(MANY_CPU_S - COUNT_CPU_S * len(present.table), 0.0)
    budget = (left_s, service.driver.decisions.spent_s) if many else (ANSWER_CPU_S, 0.0)
    if budget[1] > budget[0]:  # no policy is asked, so later jobs do not matter
        earlier = present.table.jobs[: present.table.row(record.job.id)]
        present = present.without_behind(record.job.id, {job.id for job in earlier})
    why = await service.work.answer.do(
        lambda: partial(explain_within, budget, present, record.job.id, waits, more)
    )
    _note_start(service, record.job.id, why.start, present.now)
    advice = why.advice
    moved = record.said if record.blocker is Blocker.MOVED else ""
    memory = job_view.memory_wait(status) or job_view.unguarded(status)
    holds = "; ".join(filter(None, (memory, why.reason, moved)))
    answer = replace(
        answer,
        reason=answer.reason if record.reason or waits is not None else holds,
        blocked_by="" if waits is None else waits.blocker.value,
        decided_by="" if waits is None else _decided_by(service, waits.blocker),
        numbers=dict(why.numbers),
        ahead=[
            _ahead(who, front)
            for front in why.ahead
            if waits is None or waits.blocker not in NOT_IN_LINE
        ],
        start=answer_start(why.start),
        left_out=list(why.left_out),
        cheapest_change=None
        if advice is None
        else Change(text=advice.text, fields=dict(advice.fields)),
    )
    return Json(answer)


def _note_start(service: Context, job: JobId, start: Estimate | None, asked: float) -> None:
    """Write down when a job was said to start: `weft verify` compares it with what came."""
    row = service.driver.scheduler.state.table.find(job)
    if start is None or start.counted or row is None:
        return
    if service.driver.scheduler.state.table.allocations[row] is not None:
        return  # it starts already
    quantiles = [start.quantile(q) for q in (0.1, 0.5, 0.9)]
    passed = service.driver.now - asked
    low, mid, high = (None if q is None else max(q - passed, 0.0) for q in quantiles)
    if low is not None and mid is not None and high is not None:
        service.driver.log_prediction(Foretold(job, low, mid, high))


@router.post("/plan", response_model=Planned)
async def plan_job(body: JobFile, service: Service, who: Writer) -> Json:
    """Plan this job as if it were submitted now; nothing is queued."""
    return Json(await _plan(body, service, who, WhatIfChanges()))


@router.post("/plan/what-if", response_model=Planned)
async def plan_job_if(body: PlanIf, service: Service, who: Writer) -> Json:
    """Plan this job as if it were submitted now and something were different; nothing is queued."""
    return Json(await _plan(body.job, service, who, await read_change(service, who, body.change)))


async def _plan(body: JobFile, service: Context, who: Caller, change: WhatIfChanges) -> Planned:
    check_sweep(body)
    after = await AwaitedJobs(service.names, who).resolve_after(body)
    job = next(read_jobs(body, service, who, after))  # the first of a sweep
    if job.id in service.driver.scheduler.state.table:
        raise HttpProblem(409, f"there is a job {job.id!r} already", "leave the id out", "id")
    service.driver.engine.check(job)
    check_job(job, change.cluster(service.driver.node_list.whole))
    driver = service.driver
    present = Present.of(driver.scheduler, driver.now, correction=driver.start_correction())
    rules, policy = service.live.quotas, service.live.policy
    trial = await service.work.answer.do(
        lambda: partial(plan_within, ANSWER_CPU_S, change, present, policy, rules, job)
    )
    return Planned(
        starts_now=trial.allocation is not None,
        allocation=JobView(service.driver).allocation(trial.allocation),
        displaces=[
            _ahead(who, Front(job, float(job.demand.gpus), running=True)) for job in trial.displaces
        ],
        reason=trial.reason,
        start=answer_start(trial.start),
        moves=[_moved(who, job, text) for job, text in trial.moves],
    )


async def read_change(service: Context, who: Caller, wanted: Changed) -> WhatIfChanges:
    """The changes that were asked for, checked."""
    check_machines(wanted.nodes)
    try:
        asked = None
        if wanted.policy is not None:
            asked = without_wrappers(read_spec("policy", describe_policy(wanted.policy)))
        sizes: dict[str, int] = {}
        for name, gpus in {job.id: job.gpus for job in wanted.jobs}.items():
            await request_purse().pause()
            sizes[str(service.names.resolve(name, who))] = gpus
        change = WhatIfChanges(
            asked, dict(wanted.limits), dict(wanted.weights), wanted.nodes, sizes
        )
        change.wrap_policy(service.live.policy, service.live.quotas)
        change.cluster(service.driver.scheduler.state.cluster)
    except UnknownName as error:
        raise HttpProblem(422, error.what, error.hint, "policy") from error
    return change


def _decided_by(service: Context, blocker: Blocker) -> str:
    """The layer, or the policy, that keeps a job waiting for that reason."""
    policy = service.live.policy
    return decided_by(blocker, policy.text, [wrapper.name for wrapper in policy.wrappers])


def _others_changes(service: Context, job: Job, waits: Reason | None) -> list[Advice]:
    """Changes that an admin could make: use a drained machine again, or raise a quota."""
    advice = []
    for node, word in service.driver.nodes():
        if word == "drained" and (not job.demand.kinds or node.kind in job.demand.kinds):
            text = f"use node {node.id} again (`weft undrain {node.id}`)"
            advice.append(
                Advice(text, {"undrain": node.id}, job, partial(Present.with_node, node=node))
            )
    if waits is not None and waits.blocker in OVER_QUOTA:
        held = count_held_by_tenant(service.driver)[job.tenant]
        limit = held + job.demand.min * job.demand.share
        change = WhatIfChanges(limits={job.tenant: limit})
        rules, named = service.live.quotas, service.live.policy
        word = device_word(service.driver.scheduler.state.cluster.kinds)
        much = f"{limit:g} {word}{'s' * (limit != 1)}"
        text = f"a quota of {much} (`weft quota set {job.tenant} --gpus {limit:g}`)"
        raised = partial(change.present, policy=named, rules=rules)
        advice.append(Advice(text, {"limits": {job.tenant: limit}}, job, raised))
    return advice


def _ahead(who: Caller, front: Front) -> Ahead:
    job: Job = front.job
    mine = who.sees(job)
    return Ahead(
        id=job.id if mine else "",
        name=name_of(job) if mine else "another tenant's job",
        tenant=job.tenant if mine else "",
        state="running" if front.running else "waiting",
        gpus=front.gpus,
    )


def _moved(who: Caller, job: Job, text: str) -> Moved:
    mine = who.sees(job)
    return Moved(
        id=job.id if mine else "", name=name_of(job) if mine else "another tenant's job", text=text
    )


# Questions about the live scheduler as work that is done aside, within so much CPU time.

Report = Callable[[Any], None]


def explain_within(
    budget: tuple[float, float],
    present: Present,
    job: JobId,
    waits: Reason | None,
    more: Sequence[Advice],
    _report: Report,
) -> Why:
    """The reason why a job waits or holds what it holds.

    `budget` are its CPU seconds and a decision's.
    """
    return explain(present, job, waits, more, CpuBudget(*budget))


def plan_within(
    cpu_s: float,
    change: WhatIfChanges,
    present: Present,
    policy: PartSpec,
    rules: Quotas,
    job: Job,
    _report: Report,
) -> Trial:
    """The outcome for a job where something is different."""
    budget = CpuBudget(cpu_s)
    return plan(change.present(present, policy, rules), job, budget)
