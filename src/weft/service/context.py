"""What every route needs: the live scheduler, and who asks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from weft.app.serve import Driver, JobStatus, Live
from weft.core.errors import did_you_mean
from weft.core.model import JobId
from weft.service.answers import Problem
from weft.service.auth import ANYBODY, Caller, Tokens, is_loopback
from weft.service.webhooks import Hooks

BEARER = HTTPBearer(auto_error=False, description="A token; none is needed until one is made.")
PROBLEMS: dict[int | str, dict[str, object]] = {
    400: {"model": Problem, "description": "The body cannot be read."},
    401: {"model": Problem, "description": "A token is needed."},
    403: {"model": Problem, "description": "The token does not allow this."},
    404: {"model": Problem, "description": "There is no such thing."},
    409: {"model": Problem, "description": "It cannot be done as things are."},
    413: {"model": Problem, "description": "The body is too long."},
    422: {"model": Problem, "description": "A field is wrong."},
    503: {"model": Problem, "description": "The scheduler is closing or broken."},
}


class Refused(Exception):  # noqa: N818 - what is said, not what broke
    """An answer other than success."""

    def __init__(self, status: int, what: str, hint: str = "", field: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.hint, self.field = status, what, hint, field


@dataclass(slots=True)
class Context:
    """One service.

    `bound` is the address it listens on. Simulations for people run one at a time in `aside`.
    """

    live: Live
    tokens: Tokens
    hooks: Hooks
    bound: str = "127.0.0.1"
    heartbeat_s: float = 15.0
    aside: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="aside")
    )

    @property
    def driver(self) -> Driver:
        """The driver."""
        return self.live.driver


# Asynchronous although they wait for nothing: others would be run in a thread each time.


async def context(request: Request) -> Context:
    """The service that a request came to."""
    return _service(request)


async def caller(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
) -> Caller:
    """Who asks; refused without a token where there are some."""
    service = _service(request)
    if not len(service.tokens):
        _check_local(request, service)
        return ANYBODY
    if bearer is None:
        raise Refused(401, "a token is needed", "send `Authorization: Bearer TOKEN`")
    found = service.tokens.who(bearer.credentials)
    if found is None:
        raise Refused(401, "this token is not known here", "it may have been revoked")
    return found


async def admin(who: Annotated[Caller, Depends(caller)]) -> Caller:
    """An admin."""
    if not who.admin:
        raise Refused(403, "only an admin may do this", "ask an admin")
    return who


async def writer(who: Annotated[Caller, Depends(caller)]) -> Caller:
    """Somebody who may change things."""
    if who.role == "viewer":
        raise Refused(403, "a viewer may only look", "use a token of role user")
    return who


Service = Annotated[Context, Depends(context)]
Anyone = Annotated[Caller, Depends(caller)]
Admin = Annotated[Caller, Depends(admin)]
Writer = Annotated[Caller, Depends(writer)]


def find_job(service: Context, who: Caller, job_id: str) -> JobStatus:
    """A job that the caller may see; others are as unknown as those that never were."""
    record = service.driver.ledger.jobs.get(JobId(job_id))
    if record is None or not who.sees(record.job):
        mine = [name for name, one in service.driver.ledger.jobs.items() if who.sees(one.job)]
        close = did_you_mean(job_id[:64], mine[-5000:])
        raise Refused(404, f"there is no job {job_id[:64]!r}{close}", "`weft jobs` lists yours")
    return service.driver.job(JobId(job_id))


def _service(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


def _check_local(request: Request, service: Context) -> None:
    """Without tokens: only this machine, and no web page of another site through a browser."""
    if not is_loopback(service.bound):
        raise Refused(401, "a token is needed, and none has been made", "see `weft token create`")
    host = request.url.hostname or ""
    origin = request.headers.get("origin", "")
    foreign = origin and not is_loopback(origin.partition("://")[2].rsplit(":", 1)[0])
    if not is_loopback(host) or foreign:
        raise Refused(
            403,
            "without tokens only this machine is answered, by its own name",
            "use http://127.0.0.1 or http://localhost, or make a token",
        )
