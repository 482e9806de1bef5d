"""Headers that are too long are refused before anybody reads what is in them."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from weft.service.http.problems import problem


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
        await self._app(scope, receive, send)


def weigh_header(scope: Scope) -> int:
    """Bytes of the request's line and fields."""
    line = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    return line + sum(len(name) + len(value) for name, value in scope["headers"])


def refusal(most: int) -> tuple[str, str]:
    """What is said, and what helps."""
    what = f"the request's header is longer than {most / 1024:g} KiB"
    return what, "send fewer cookies and a shorter address (`weft serve --limit header_kib=N`)"
