"""Bodies that are too large, or take too long to come, are refused before they are in memory."""

from __future__ import annotations

import asyncio
import re

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.service.problems import problem

# A session's body goes on for as long as the session; its streams are counted instead.
ENDLESS = re.compile(r".*/jobs/[^/]+/(terminal|ports/\d+)")
CLOSE = {"Connection": "close"}  # nobody waits for the rest of the body


class LimitBody:
    """Answers 413 to a body of more than `most` bytes, announced or not, and 408 to a slow one.

    `most` None and `within_s` 0 are no limits.
    """

    def __init__(self, app: ASGIApp, most: int | None = None, within_s: float = 0.0) -> None:
        self._app = app
        self._most = most
        self._within_s = within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or ENDLESS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if self._most is not None and told.isdigit() and int(told) > self._most:
            await problem(413, *self._said())(scope, receive, send)
            return
        read, whole = 0, False
        until = asyncio.get_running_loop().time() + self._within_s if self._within_s else None

        async def counted() -> Message:
            nonlocal read, whole
            if whole:
                return await receive()  # until the client goes
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                # FastAPI lets only its own errors through while it reads a body.
                said = f"the body did not arrive within {self._within_s:g} s"
                raise HTTPException(408, said, CLOSE) from None
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if self._most is not None and read > self._most:
                raise HTTPException(413, self._said()[0])
            return message

        await self._app(scope, counted, send)

    def _said(self) -> tuple[str, str]:
        return (
            f"the body is longer than {(self._most or 0) / (1 << 20):g} MiB",
            "a job file is small; send data otherwise",
        )
