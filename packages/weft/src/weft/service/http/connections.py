"""Connections: how many at once, how long one may take to ask, and how long its header may be."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import Iterable
from typing import Any, ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from weft.app.serve.rules import TenantLimits
from weft.service.access.page_sessions import COOKIE
from weft.service.budget.intake import RequestBudget
from weft.service.http.replies import problem

MANY = 65_536
SLACK = 5  # times the longest header: until then its end is awaited, so that it can be answered
OWN_FILES = 256  # what the log, the engine and its jobs need beside connections
OWN = re.compile(rb"(?:^|;) *(" + COOKIE.encode() + rb"=[A-Za-z0-9_-]+) *(?:;|$)")


def most_connections(limits: TenantLimits) -> int:
    """The number of connections that may be open so that the rest of the service has files left."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = MANY
    room = max(files - OWN_FILES, files // 2)
    return min(int(limits.connections), room) if limits.connections else room


def protocol_of(limits: TenantLimits) -> type[asyncio.Protocol]:
    """A server's side of HTTP with these limits; uvicorn takes a class."""
    held = {
        "most": most_connections(limits),
        "header_s": limits.header_s,
        "header_bytes": RequestBudget.of(limits).header,
        "unasked": {},
    }
    return type("LimitedConnection", (Connection,), held)


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type, unused-ignore]  # chosen at run time
    """One connection; it ends if it asks for nothing in time, or its header does not end.

    Where there are too many, the one that has been silent longest makes room: a client that holds
    connections open and asks for nothing keeps no one out.
    """

    most: ClassVar[int] = MANY
    header_s: ClassVar[float] = 0.0
    header_bytes: ClassVar[int] = 0
    unasked: ClassVar[dict[Connection, None]] = {}  # in the order of their coming
    asking: asyncio.TimerHandle | None = None
    in_header, header_read, complete = True, 0, False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect()
        if len(self.connections) > self.most:
            oldest = next(iter(self.unasked))
            oldest._end()

    def data_received(self, data: bytes) -> None:
        self.complete = False
        super().data_received(data)
        if self.in_header and not self.complete:
            self.header_read += len(data)
            if self.header_bytes and self.header_read > SLACK * self.header_bytes:
                self._end()  # what it asks for will not be known
                return
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_no_more()
        elif self not in self.unasked:
            self._expect()

    def on_headers_complete(self) -> None:
        """All of a header is there; `LimitHeader` weighs it."""
        self.in_header, self.header_read = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of a request is there; what comes is the next one's header."""
        self.in_header = self.complete = True
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_no_more()
        super().connection_lost(exc)

    def _expect(self) -> None:
        loop: Any = self.loop
        self.unasked[self] = None
        if self.header_s:
            self.asking = loop.call_later(self.header_s, self._end)

    def _end(self) -> None:
        self._expect_no_more()
        self.transport.abort()

    def _expect_no_more(self) -> None:
        self.unasked.pop(self, None)
        if self.asking is not None:
            self.asking.cancel()
            self.asking = None


# ---- Headers that are too long are refused before anyone reads what is in them
#
# Cookies of others are left out of those that are not: the framework parses every cookie there
# is, for every route, and takes a second for 16 KB of backslashes.


class LimitHeader:
    """Answers 431 to a request whose line and header fields have more than `most` bytes.

    0 is no limit. Those that never end are cut off where they arrive: see `connections`.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._most and weigh_header(scope) > self._most:
            answer = problem(431, *refusal(self._most))
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send)
            return
        if scope["type"] == "http":
            scope = {**scope, "headers": [*_without_strange_cookies(scope["headers"])]}
        await self._app(scope, receive, send)


def _without_strange_cookies(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    kept = []
    for name, value in headers:
        if name != b"cookie":
            kept.append((name, value))
        elif (own := OWN.search(value)) is not None:
            kept.append((name, own[1]))
    return kept


def weigh_header(scope: Scope) -> int:
    """Bytes of the request's line and fields."""
    line = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    return line + sum(len(name) + len(value) for name, value in scope["headers"])


def refusal(most: int) -> tuple[str, str]:
    """The error and its hint."""
    what = f"the request's header is longer than {most / 1024:g} KiB"
    return what, "send fewer cookies and a shorter address (`weft serve --limit header_kib=N`)"
