"""The same jobs with something different, simulated beside the driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field

from weft.app.insight.changes import Changes
from weft.app.insight.history import read_speeds
from weft.app.insight.present import Ahead as Forked
from weft.app.insight.present import Estimate, Present
from weft.app.insight.what_if import HOUR, MOST_JOBS, Compared, Variant, what_if
from weft.core.errors import WeftError
from weft.core.model.job import name_of
from weft.service.access.tokens import Caller
from weft.service.context import PROBLEMS, Anyone, Context, Service
from weft.service.http.json_body import Json, write_json
from weft.service.http.refusals import Refused
from weft.service.responses.answers import Comparison, Outlook, Problem
from weft.service.responses.what_if import (
    Progress,
    Sides,
    WhatIfLine,
    describe_forks,
    describe_runs,
    metric_columns,
)
from weft.service.routes.jobs.why import Changed, read_change, start_of

router = APIRouter(tags=["why"], responses=PROBLEMS)

LINES: dict[int | str, dict[str, Any]] = {
    200: {"model": WhatIfLine, "content": {"application/x-ndjson": {}}, "description": "A line."}
}
Report = Callable[[str, float], None]
Found = tuple[Comparison, dict[str, Sides]]


class WhatIf(Changed):
    """The same, from what: the jobs of the log, of the last `hours`, or what there is now."""

    start: Literal["history", "now"] = "history"
    hours: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None


@router.post("/what-if", response_model=Comparison)
async def compare(body: WhatIf, service: Service, who: Anyone) -> Json:
    """The log's jobs, or those there are now, simulated as things are and with a change."""
    work = _prepare(service, who, body, lambda _label, _part: None)
    try:
        found, _ = await service.work_aside(work)
    except WeftError as error:
        raise Refused(409, error.what, error.hint) from error
    return Json(found)


@router.post("/what-if/stream", response_class=StreamingResponse, responses=LINES)
async def compare_with_progress(body: WhatIf, service: Service, who: Anyone) -> StreamingResponse:
    """The same as lines of JSON: how far each simulation is, then both sides with their details."""
    news: asyncio.Queue[Progress] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def report(label: str, part: float) -> None:
        loop.call_soon_threadsafe(news.put_nowait, Progress(label=label, part=part))

    work = _prepare(service, who, body, report)
    lines = _lines(service, news, work)
    return service.streams.response(who, lines, "application/x-ndjson")


async def _lines(
    service: Context, news: asyncio.Queue[Progress], work: Callable[[], Found]
) -> AsyncIterator[bytes]:
    working = asyncio.ensure_future(service.work_aside(work))
    try:
        while not working.done():
            hearing = asyncio.ensure_future(news.get())
            await asyncio.wait({working, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                yield _line(WhatIfLine(progress=hearing.result()))
            else:
                hearing.cancel()
        while not news.empty():
            yield _line(WhatIfLine(progress=news.get_nowait()))
        found, sides = working.result()
        yield _line(WhatIfLine(result=found, metrics=metric_columns(), sides=sides))
    except WeftError as error:
        yield _line(WhatIfLine(problem=Problem(error=error.what, hint=error.hint)))
    finally:
        working.cancel()


def _line(told: WhatIfLine) -> bytes:
    return write_json(told) + b"\n"


def _prepare(service: Context, who: Caller, body: WhatIf, report: Report) -> Callable[[], Found]:
    """What answers the question, to be called beside the loop; Refused for one that is none."""
    change = read_change(service, who, body)
    if not change:
        raise Refused(422, "nothing is different", "name a policy, limits, nodes or a job")
    if body.start == "now":
        return _ahead(service, who, change, report)
    if not who.everywhere:
        raise Refused(403, "the past holds all tenants' jobs", "ask an admin, or start from now")
    return _back(service, change, body.hours, report)


def _back(
    service: Context, change: Changes, hours: float | None, report: Report
) -> Callable[[], Found]:
    """The past, as it was decided and with the change."""
    rules, named = service.live.quotas, service.live.policy
    cluster, now = service.driver.scheduler.state.cluster, service.driver.now
    variants = {
        named.text: Variant(service.driver.policy, cluster),
        change.label(named.text): Variant(
            change.around(named, rules), change.cluster(cluster), change
        ),
    }
    jobs, store = service.driver.ledger.jobs, service.live.store
    since = 0.0 if hours is None else now - hours * HOUR
    read = jobs.pager(MOST_JOBS, after=jobs.following - MOST_JOBS - 1, since=since)

    def work() -> Found:
        found: Compared = what_if(
            read(), variants, now, hours=hours, speeds=read_speeds(store), progress=report
        )
        told = Comparison(
            policies={name: dict(values) for name, values in found.policies.items()},
            jobs=found.jobs,
            hours=found.hours,
            note=found.note,
        )
        return told, describe_runs(found.outcomes)

    return work


def _ahead(service: Context, who: Caller, change: Changes, report: Report) -> Callable[[], Found]:
    """From now on: when the caller's jobs start and end, as things are and with the change."""
    present = Present.of(service.driver.scheduler, service.driver.now)
    rules, named = service.live.quotas, service.live.policy
    labels = (named.text, change.label(named.text))

    def work() -> Found:
        sides = (present, change.present(present, named, rules))
        both = {
            label: side.look_ahead(progress=lambda part, label=label: report(label, part))  # type: ignore[misc]
            for label, side in zip(labels, sides, strict=True)
        }
        return _compare_forks(present, who, both)

    return work


def _compare_forks(present: Present, who: Caller, both: dict[str, Forked]) -> Found:
    before, *_, after = [one.outlook for one in (*both.values(), *both.values())]
    held = present.table.suspended  # they go nowhere, whatever is different
    jobs = {job.id: job for job in present.table.jobs if job.id not in held}
    looks = [
        Outlook(
            id=name,
            name=name_of(jobs[name]),
            start=start_of(before[name].start),
            start_then=start_of(after[name].start),
            end=start_of(before[name].end),
            end_then=start_of(after[name].end),
        )
        for name in before
        if name in jobs and who.sees(jobs[name])
    ]
    means = {
        label: {
            "avg_start_h": _mean_h([found.outlook[job].start for job in jobs]),
            "avg_end_h": _mean_h([found.outlook[job].end for job in jobs]),
        }
        for label, found in both.items()
    }
    note = f"{len(jobs)} jobs simulated from now on; speeds as they reported, else by GPUs"
    if held:
        note += f"; suspended and left out: {len(held)}"
    told = Comparison(policies=means, jobs=len(jobs), hours=0.0, note=note, outlook=looks)
    seen = {name: job for name, job in jobs.items() if who.sees(job)}
    return told, describe_forks(both, seen, present.now)


def _mean_h(found: list[Estimate]) -> float | None:
    """The mean over jobs of the median over simulations; None where not all came to it."""
    middles = [one.quantile(0.5) for one in found]
    known = [one for one in middles if one is not None]
    return sum(known) / len(known) / HOUR if known and len(known) == len(middles) else None
