"""Bodies that are too large are refused before they are in memory."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.service.problems import problem

MOST_BYTES = 8 << 20


class LimitBody:
    """Answers 413 to a request whose body is longer than `most` bytes, announced or not."""

    def __init__(self, app: ASGIApp, most: int = MOST_BYTES) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if told.isdigit() and int(told) > self._most:
            await problem(413, *self._said())(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                # FastAPI lets only its own errors through while it reads a body.
                raise HTTPException(413, self._said()[0])
            return message

        await self._app(scope, counted, send)

    def _said(self) -> tuple[str, str]:
        return (
            f"the body is longer than {self._most >> 20} MiB",
            "a job file is small; send data otherwise",
        )
