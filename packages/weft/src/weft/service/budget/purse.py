"""Limits of what a request may cost the loop: CPU time, and rows that its lists multiply to.

Every request has one purse, and whatever works for it draws from that, by whichever route.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from math import inf

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.service.budget.intake import asker_of
from weft.service.http.replies import HttpProblem

CPU_S = 3.0  # a sweep of a thousand takes a tenth of it
ROWS = 100_000  # jobs that all jobs of a request wait for; those of equal jobs count once
PIECE_S = 0.005  # worked on before others have their turn


class RequestPurse:
    """The budget of one request; `pause` and `take` refuse it with 422 once that is nothing."""

    def __init__(self, scope: Scope | None = None, cpu_s: float = CPU_S) -> None:
        self._scope = {} if scope is None else scope
        self._cpu_s = cpu_s
        self.spent_s, self.taken = 0.0, 0
        self.step_began = time.thread_time()

    @property
    def route(self) -> str:
        """The method and the route, as the documentation writes it."""
        route = self._scope.get("route")
        path = route.path if isinstance(route, Route) else "a path that there is not"
        return f"{self._scope.get('method', self._scope.get('type', ''))} {path}"

    @property
    def tenant(self) -> str:
        """The tenant whose token came with it."""
        return asker_of(self._scope).key

    def pay_rows(self, rows: int, what: str, hint: str, field: str = "") -> None:
        """Pay for that many rows, before they are made."""
        self.taken += rows
        if self.taken > ROWS:
            raise HttpProblem(422, f"{what} more than {ROWS:,} together", hint, field)

    async def pause(self) -> None:
        """Give others a turn if this one has lasted a while; to be called within every loop."""
        step_s = time.thread_time() - self.step_began
        if self.spent_s + step_s > self._cpu_s:
            raise HttpProblem(
                422,
                f"this request takes more than {self._cpu_s:g} s of the scheduler's processor",
                "ask for less at a time",
            )
        if step_s > PIECE_S:
            await asyncio.sleep(0.0)


_PURSE: ContextVar[RequestPurse | None] = ContextVar("purse", default=None)


def purse_here() -> RequestPurse | None:
    """The purse of the request that this is done for, if it is for one."""
    return _PURSE.get()


def request_purse() -> RequestPurse:
    """The purse of the request that this is done for; another for work that no request asks for."""
    return _PURSE.get() or RequestPurse(cpu_s=inf)


class Purses:
    """Gives each request its purse."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _PURSE.set(RequestPurse(scope))
        await self._app(scope, receive, send)
