"""The context of every route: the live scheduler, and the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from weft.app.serve.live import Live
from weft.app.serve.rules import TenantLimits
from weft.runtime.loop.driver import Driver
from weft.runtime.records.status import JobStatus
from weft.service.access.audit import AuditLog
from weft.service.access.page_sessions import PageSessions
from weft.service.access.rate_limit import Buckets, Streams
from weft.service.access.tokens import ANYBODY, Caller, TokenFile, is_loopback
from weft.service.budget.aside import WorkProcesses
from weft.service.budget.turns import LoopTurns
from weft.service.http.replies import HttpProblem
from weft.service.jobs.job_names import JobNames
from weft.service.jobs.what_if_work import QueueForecast
from weft.service.needs_reader import NeedsReader
from weft.service.notify.webhooks import Hooks
from weft.service.responses.answers import Problem
from weft.service.streams.event_json import Rendered
from weft.service.streams.live_updates import LiveUpdates
from weft.service.streams.timeline import TimelineReader
from weft.service.verdicts import Verdicts
from weft.service.watchdog import Watchdog

T = TypeVar("T")

READERS = 4
PREFIX = "/api/v1"
OUR_SITE = ("", "none", "same-origin")  # what a browser says about who asks; others say nothing
_PROBLEM = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
# FastAPI builds a validator for each `model` of each route at the start; one is enough for a name.
PROBLEMS: dict[int | str, dict[str, object]] = {
    400: {**_PROBLEM, "description": "The body cannot be read."},
    401: {**_PROBLEM, "description": "A token is needed."},
    403: {**_PROBLEM, "description": "The token does not allow this."},
    404: {**_PROBLEM, "description": "Not found."},
    408: {**_PROBLEM, "description": "The body did not arrive in time."},
    409: {**_PROBLEM, "description": "It cannot be done in the present state."},
    413: {**_PROBLEM, "description": "The body is too long."},
    422: {"model": Problem, "description": "A field is wrong."},
    429: {**_PROBLEM, "description": "A limit of the tenant; `Retry-After` says when."},
    503: {**_PROBLEM, "description": "The scheduler is closing or broken."},
}


@dataclass(slots=True)
class Context:
    """One service.

    `bound` is the address it listens on. What people ask to be parsed or simulated is done by the
    processes of `work`; `reading` is for files and the log's past, which have threads of their own
    so that readers do not keep the driver from writing. `searches_over` says of sweeps why their
    searches ended early.
    """

    live: Live
    tokens: TokenFile
    hooks: Hooks
    audit: AuditLog
    sessions: PageSessions
    buckets: Buckets = field(default_factory=lambda: Buckets(0.0, 1.0))
    bound: str = "127.0.0.1"
    heartbeat_s: float = 15.0
    turns: LoopTurns = field(default_factory=LoopTurns)
    work: WorkProcesses = field(default_factory=WorkProcesses)
    reading: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(READERS, thread_name_prefix="reading")
    )
    names: JobNames = field(init=False)
    streams: Streams = field(init=False)
    watchdog: Watchdog = field(init=False)
    live_updates: LiveUpdates = field(init=False)
    forecast: QueueForecast = field(init=False)
    timeline: TimelineReader = field(init=False)
    verdicts: Verdicts = field(init=False)
    needs: NeedsReader = field(init=False)
    rendered: Rendered = field(default_factory=Rendered)
    searches_over: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = JobNames(lambda: self.driver.ledger.jobs)
        self.streams = Streams(self.limits.streams)
        self.watchdog = Watchdog(self.live)
        self.live_updates = LiveUpdates(self.live)
        self.forecast = QueueForecast(self.work.forecast)
        self.timeline = TimelineReader(self.live.driver)
        self.verdicts = Verdicts(self.live.settings, self.work.judge)
        self.needs = NeedsReader(self.live, self.verdicts, self.watchdog)

    @property
    def limits(self) -> TenantLimits:
        """The limits of each tenant."""
        return self.live.settings.limits

    async def read(self, work: Callable[[], T]) -> T:
        """Read something beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self.reading, work)

    def begin_tasks(self) -> None:
        """Begin what goes on beside requests; from the event loop."""
        self.names.catch_up()
        self.watchdog.open()
        self.verdicts.open()

    async def end_tasks(self) -> None:
        """End what goes on beside requests."""
        await self.watchdog.close()
        await self.verdicts.close()
        await self.timeline.close()

    def close(self) -> None:
        """Let go of threads, processes and the loop."""
        self.turns.close()
        self.work.close()
        self.reading.shutdown(wait=False, cancel_futures=True)

    @property
    def driver(self) -> Driver:
        """The driver."""
        return self.live.driver


# Asynchronous although they wait for nothing: others would be run in a thread each time.


async def context(request: Request) -> Context:
    """The service that a request came to."""
    return _service(request)


class Who(HTTPBearer):
    """The caller, if `may` does not say why not; refused without a token where there are some.

    The scheme and the look-up are one dependency: each one costs every request.
    """

    def __init__(self, may: Callable[[Caller], HttpProblem | None] = lambda _: None) -> None:
        description = "A token; none is needed until one is made."
        super().__init__(auto_error=False, scheme_name="HTTPBearer", description=description)
        self._may = may

    async def __call__(self, request: Request) -> Caller:  # type: ignore[override, unused-ignore]
        who = _caller(request, _service(request))
        request.state.caller = who  # for the audit log
        if refusal := self._may(who):
            raise refusal
        return who


def _admin(who: Caller) -> HttpProblem | None:
    return None if who.admin else HttpProblem(403, "only an admin may do this", "ask an admin")


def _writer(who: Caller) -> HttpProblem | None:
    if who.role != "viewer":
        return None
    return HttpProblem(403, "a viewer may only read", "use a token of role user")


Service = Annotated[Context, Depends(context)]
Anyone = Annotated[Caller, Depends(Who())]
Admin = Annotated[Caller, Depends(Who(_admin))]
Writer = Annotated[Caller, Depends(Who(_writer))]


def find_job(service: Context, who: Caller, job_id: str) -> JobStatus:
    """A job that the caller may see; others are as unknown as those that never were."""
    return service.driver.job(service.names.resolve(job_id, who))


def _service(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def _caller(request: Request, service: Context) -> Caller:
    headers = request.headers
    if not len(service.tokens):
        names = (headers.get(name, "") for name in ("host", "origin", "sec-fetch-site"))
        _check_local(*names, service.bound)
        return ANYBODY
    caller = service.sessions.caller_of(headers)
    if caller is not None:
        return caller
    if not headers.get("authorization", "").lower().startswith("bearer "):
        raise HttpProblem(401, "a token is needed", "send `Authorization: Bearer TOKEN`")
    raise HttpProblem(401, "this token is not known here", "it may have expired or been revoked")


@lru_cache(maxsize=256)
def _check_local(host: str, origin: str, site: str, bound: str) -> None:
    """Without tokens: only this machine, and no web page but our own through a browser.

    A page of another port of this machine is another's, too.
    """
    if not is_loopback(bound):
        raise HttpProblem(
            401, "a token is needed, and none has been made", "see `weft token create`"
        )
    foreign = (origin and origin.partition("://")[2] != host) or site not in OUR_SITE
    if not is_loopback(_name(host)) or foreign:
        raise HttpProblem(
            403,
            "without tokens the service answers only this machine, by its own name",
            "use http://127.0.0.1 or http://localhost, or make a token",
        )


def _name(host: str) -> str:
    """The host of a Host header; empty for one that cannot be read."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
