"""Comparisons with something different, and the queue ahead, simulated beside the driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from weft.app.insight.history import read_speeds
from weft.app.insight.present import Present
from weft.app.insight.what_if import HOUR, MOST_JOBS, Variant, WhatIfChanges
from weft.core.errors import WeftError
from weft.core.model.cluster import Cluster, Node
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service
from weft.service.http.replies import HttpProblem, Json, write_json
from weft.service.jobs.what_if_work import (
    ALL_TENANTS,
    Report,
    WrittenComparison,
    compare_ahead,
    compare_past,
)
from weft.service.responses.answers import Comparison, Problem
from weft.service.responses.watch import Progress, Queue, WhatIfLine
from weft.service.routes.jobs.why import Changed, read_change

router = APIRouter(prefix=PREFIX, tags=["why"], responses=PROBLEMS)

LINES: dict[int | str, dict[str, Any]] = {
    200: {"model": WhatIfLine, "content": {"application/x-ndjson": {}}, "description": "A line."}
}
MOST_CPU_S = 100.0  # its process is ended soon after
Prepare = Callable[
    [], Callable[[Report], WrittenComparison]
]  # reads beside the loop what is to be compared


class WhatIf(Changed):
    """The change, and what to simulate: the log's jobs, the last `hours`, or what runs now."""

    start: Literal["history", "now"] = "history"
    hours: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None
    cpu_s: Annotated[
        float, Field(gt=0.0, le=MOST_CPU_S, description="Work that takes longer is left out.")
    ] = MOST_CPU_S


@router.post("/what-if", response_model=Comparison)
async def compare(body: WhatIf, service: Service, who: Anyone) -> Response:
    """Simulate the log's jobs, or the present ones, with the current settings and with a change."""
    try:
        answer = await service.work.simulate.do(await _prepare(service, who, body))
    except WeftError as error:
        raise HttpProblem(409, error.what, error.hint) from error
    return Response(answer.comparison, media_type=Json.media_type)


@router.post("/what-if/stream", response_class=StreamingResponse, responses=LINES)
async def compare_with_progress(body: WhatIf, service: Service, who: Anyone) -> StreamingResponse:
    """Compare, in lines of JSON: the progress of each simulation, then both results in detail."""
    news: asyncio.Queue[Progress] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    stopped = threading.Event()
    prepare = await _prepare(service, who, body)

    def begin() -> Callable[[Report], WrittenComparison]:
        _check_wanted(stopped)
        return prepare()

    def report(part: Progress) -> None:
        _check_wanted(stopped)
        loop.call_soon_threadsafe(news.put_nowait, part)

    lines = _lines(service, news, begin, report, stopped)
    return service.streams.response(who, lines, "application/x-ndjson")


def _check_wanted(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise HttpProblem(409, "the client has disconnected")


async def _lines(
    service: Context,
    news: asyncio.Queue[Progress],
    work: Prepare,
    report: Report,
    stopped: threading.Event,
) -> AsyncIterator[bytes]:
    working = asyncio.ensure_future(service.work.simulate.do(work, report))
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
        yield working.result().line + b"\n"
    except (WeftError, HttpProblem) as error:
        yield _line(WhatIfLine(problem=Problem(error=error.what, hint=error.hint)))
    finally:
        stopped.set()  # its process is ended with the next report, and free for others
        working.cancel()


def _line(line: WhatIfLine) -> bytes:
    return write_json(line) + b"\n"


async def _prepare(service: Context, who: Caller, body: WhatIf) -> Prepare:
    """The work that answers the question, to be called beside the loop.

    Refused for one that is none.
    """
    change = await read_change(service, who, body)
    if not change:
        raise HttpProblem(422, "nothing is different", "name a policy, limits, nodes or a job")
    rules, named = service.live.quotas, service.live.policy
    if body.start == "now":
        present = Present.of(service.driver.scheduler, service.driver.now)
        return lambda: partial(compare_ahead, body.cpu_s, present, change, named, rules, who)
    if not who.everywhere:
        raise HttpProblem(
            403, "the past contains the jobs of all tenants", "ask an admin, or start from now"
        )
    return _back(service, change, body.hours, body.cpu_s)


def _back(service: Context, change: WhatIfChanges, hours: float | None, cpu_s: float) -> Prepare:
    """The past, as it was decided and with the change."""
    rules, named = service.live.quotas, service.live.policy
    now, away = service.driver.now, _drained(service)
    cluster = Cluster((*service.driver.scheduler.state.cluster.nodes, *away))
    names = ", ".join(sorted(node.id for node in away))
    remark = f"; counted although drained now: {names}" if away else ""
    variants = {
        named.text: Variant(service.driver.policy, cluster),
        change.label(named.text): Variant(
            change.wrap_policy(named, rules), change.cluster(cluster), change
        ),
    }
    jobs, store = service.driver.ledger.jobs, service.live.store
    since = 0.0 if hours is None else now - hours * HOUR
    read = jobs.page_reader(MOST_JOBS, after=jobs.following - MOST_JOBS - 1, since=since)
    return lambda: partial(
        compare_past, cpu_s, read(), variants, now, hours, read_speeds(store), remark
    )


def _drained(service: Context) -> list[Node]:
    """Machines that are drained now: they were there in the past."""
    known = {node.id for node in service.driver.scheduler.state.cluster.nodes}
    nodes = service.driver.nodes()
    return [node for node, word in nodes if word == "drained" and node.id not in known]


@router.get("/queue", response_model=Queue)
async def queue(service: Service, who: Anyone) -> Response:
    """The caller's waiting jobs, with their place in the queue and expected start.

    Simulated from the present state under the policy that decides; places count all tenants' jobs.
    """
    driver = service.driver
    whose = ALL_TENANTS if who.everywhere else who.tenant
    try:
        jobs, again_s, unknown = await service.forecast.forecast_tenant(
            whose,
            lambda: Present.of(driver.scheduler, driver.now, correction=driver.start_correction()),
        )
    except WeftError as error:
        raise HttpProblem(409, error.what, error.hint) from error
    more = write_json(again_s), write_json(unknown)
    body = b'{"jobs":%b,"again_s":%b,"unknown":%b}' % (jobs, *more)
    return Response(body, media_type=Json.media_type)
