"""Limits of tenants as they are kept: requests per second, open streams, jobs that have not ended.

A client that asks too often is answered late and with 429: the wait costs other clients nothing,
and bounds how often the same connections can ask.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.app.serve.rules import TenantLimits
from weft.core.model.job import Job
from weft.plural import say_gpus
from weft.service.access.tokens import Caller
from weft.service.budget.intake import Asks, asker_of, find_asker
from weft.service.http.replies import HttpProblem, problem

LONGEST_WAIT_S = 1.0
WAITING = 256  # answers that are held back at once, of one tenant
AT_ONCE = 2  # requests of one tenant that are worked on
BYTES_OF_ONE = 32_768  # of an answer that counts as one request
FREE = ("/health", "/docs", "/openapi.json", "/web/")


class Buckets:
    """Rates of requests by tenant: that many at once, and that many per second from then on."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, max(burst, 1.0), clock
        self._left: dict[str, tuple[float, float]] = {}
        self.refused: Counter[str] = Counter()

    def wait_s(self, who: str) -> float:
        """Seconds to wait before the next request is allowed; 0 if this one is."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, at = self._left.get(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        allowed = left >= 1.0
        self._left[who] = (left - 1.0 if allowed else left, now)
        if allowed:
            return 0.0
        self.refused[who] += 1
        return (1.0 - left) / self._rate

    def charge(self, who: str, more: float) -> None:
        """Charge a request for more than one: long answers count as several."""
        if self._rate and who in self._left:
            left, at = self._left[who]
            self._left[who] = (left - more, at)


class Streams:
    """Open streams of each tenant."""

    def __init__(self, most: float) -> None:
        self._most = most
        self.open: Counter[str] = Counter()

    def response(self, who: Caller, body: AsyncIterator[Any], media_type: str) -> StreamResponse:
        """A stream that counts while it is open; refused if it is one too many."""
        self.check(who)
        return StreamResponse(self.open, who.tenant, body, media_type)

    def check(self, who: Caller) -> None:
        """Refuse one more than are allowed."""
        if not who.admin and self._most and self.open[who.tenant] >= self._most:
            raise HttpProblem(
                429,
                f"tenant {who.tenant!r} has {self.open[who.tenant]} open streams",
                f"close some; at most {self._most:g} are allowed (`weft serve --limit streams=N`)",
                retry_s=5.0,
            )


class StreamResponse(StreamingResponse):
    """A stream that is counted until its client has gone."""

    def __init__(
        self, counted: Counter[str], tenant: str, body: AsyncIterator[Any], media_type: str
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(body, media_type=media_type, headers=headers)
        self._counted, self._tenant = counted, tenant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._counted[self._tenant] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._counted[self._tenant] -= 1


def check_jobs(limits: TenantLimits, jobs: Sequence[Job], active: int, who: Caller) -> None:
    """Refuse jobs beyond what a tenant may have waiting and running, or ask for."""
    if who.admin or not jobs:
        return
    largest, tenant = max(job.demand.max for job in jobs), jobs[0].tenant
    if limits.gpus and largest > limits.gpus:
        raise HttpProblem(
            422,
            f"a job may ask for {say_gpus(limits.gpus)}, this one asks for {largest}",
            "ask for fewer, or an admin to raise it (`weft serve --limit gpus=N`)",
            "gpus",
        )
    if limits.jobs and active + len(jobs) > limits.jobs:
        more = f", {len(jobs)} more are too many" if len(jobs) > 1 else ""
        raise HttpProblem(
            429,
            f"tenant {tenant!r} has {active} jobs that have not ended{more}",
            f"wait, or cancel some; at most {limits.jobs:g} are allowed "
            "(`weft serve --limit jobs=N`)",
            retry_s=60.0,
        )


def _turns() -> asyncio.Semaphore:
    return asyncio.Semaphore(AT_ONCE)


def _free(path: str) -> bool:
    """True for what costs nothing, and is asked for many at a time when a page opens."""
    return path == "/" or path.startswith(FREE)


class LimitRate:
    """Answers 429 to a tenant that asks too often; before anything else is done for it."""

    def __init__(self, app: ASGIApp, buckets: Buckets, asks: Asks) -> None:
        self._app, self._buckets, self._asks = app, buckets, asks
        self._waiting: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _free(scope["path"]):
            asker = find_asker(scope, self._asks)
            if not asker.admin and (wait_s := self._buckets.wait_s(asker.key)):
                await self._refuse(asker.key, wait_s, scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _refuse(
        self, key: str, wait_s: float, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if self._waiting[key] < WAITING:
            self._waiting[key] += 1
            try:
                await asyncio.sleep(min(max(wait_s, 0.1), LONGEST_WAIT_S))
            finally:
                self._waiting[key] -= 1
        answer = problem(
            429,
            "too many requests",
            "ask less often, or an admin to raise `weft serve --limit rate=N`",
        )
        answer.headers["Retry-After"] = str(math.ceil(wait_s))
        answer.headers["Connection"] = "close"
        await answer(scope, receive, send)


class RequestTurns:
    """Works on a few of a tenant's requests at a time, until their answers begin.

    Their bodies are there by then: no client holds a turn before it has sent its request.
    """

    def __init__(self, app: ASGIApp, buckets: Buckets) -> None:
        self._app, self._buckets = app, buckets
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(_turns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asker = asker_of(scope)
        if scope["type"] != "http" or asker.admin or _free(scope["path"]):
            await self._app(scope, receive, send)
            return
        turn = self._turns[asker.key]
        await turn.acquire()
        begun = False

        async def seen(message: Message) -> None:
            nonlocal begun
            if not begun:
                begun = True
                turn.release()
            self._buckets.charge(asker.key, len(message.get("body", b"")) / BYTES_OF_ONE)
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            if not begun:
                turn.release()
