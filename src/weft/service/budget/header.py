"""Headers that are too long are refused before anybody reads what is in them.

Cookies of others are left out of those that are not: the framework parses every cookie there is,
for every route, and takes a second for 16 KB of backslashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from weft.service.access.page_sessions import COOKIE
from weft.service.http.problems import problem

OWN = re.compile(rb"(?:^|;) *(" + COOKIE.encode() + rb"=[A-Za-z0-9_-]+) *(?:;|$)")


class LimitHeader:
    """Answers 431 to a request whose line and header fields have more than `most` bytes.

    0 is no limit. Those that never end are cut off where they arrive: see `connections`.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
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
    """What is said, and what helps."""
    what = f"the request's header is longer than {most / 1024:g} KiB"
    return what, "send fewer cookies and a shorter address (`weft serve --limit header_kib=N`)"
