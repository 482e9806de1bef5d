"""Bodies come in here: counted as they arrive, whole before anybody's turn is taken for them."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.service.budget.amounts import MIB, Budget
from weft.service.budget.asker import Asker, asker_of
from weft.service.budget.json_count import JsonCount, TooMuch
from weft.service.http.problems import problem
from weft.service.http.refusals import Refused

# A session's body goes on for as long as the session; its streams are counted instead.
ENDLESS = re.compile(r".*/jobs/[^/]+/(terminal|shell|ports/\d+)")


PIECE = 1 << 15  # bytes counted before others have their turn


class Intake:
    """Reads a request's body within its budget, and hands it on whole.

    Answers 413 to one that is too long or holds too much, 408 to one that does not arrive in time,
    and 429 where a tenant has too many on their way.
    """

    def __init__(self, app: ASGIApp, budget: Budget) -> None:
        self._app, self._budget = app, budget
        self._waiting: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or ENDLESS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        asker = asker_of(scope)
        try:
            self._check_announced(scope, asker)
            body = await self._read(receive, asker)
        except Refused as error:
            answer = problem(error.status, error.what, error.hint)
            answer.headers["Connection"] = "close"  # nobody waits for the rest of the body
            await answer(scope, receive, send)
            return
        if body is None:  # the client has gone
            return
        await self._app(scope, _replay(body, receive), send)

    def _check_announced(self, scope: Scope, asker: Asker) -> None:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and len(length) < 20:
            self._check_length(int(length), asker)
        elif length:
            raise Refused(400, "Content-Length is not a number of bytes", "leave it out")

    def _check_length(self, length: int, asker: Asker) -> None:
        if asker.known:
            most, hint = self._budget.body, "a job file is small; send data otherwise"
        else:
            most, hint = self._budget.strangers_body, "send it with a token"
        if self._budget.body and length > most:
            raise Refused(413, f"the body is longer than {_size(most)}", hint)

    async def _read(self, receive: Receive, asker: Asker) -> bytes | None:
        """The whole body; None if the client went before it was there."""
        count = JsonCount(self._budget.nesting, self._budget.values)
        parts: list[bytes] = []
        held = 0
        until = None
        if self._budget.within_s:
            until = asyncio.get_running_loop().time() + self._budget.within_s
        try:
            while True:
                message = await self._receive(receive, until)
                if message["type"] == "http.disconnect":
                    return None
                part = message.get("body", b"")
                held += len(part)
                self._waiting[asker.key] += len(part)
                self._check_length(held, asker)
                self._check_waiting(asker)
                for start in range(0, len(part), PIECE):
                    count.feed(part[start : start + PIECE])
                    await asyncio.sleep(0.0)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
        except TooMuch as error:
            raise Refused(413, str(error), "send less at a time") from error
        finally:
            self._waiting[asker.key] -= held
            if not self._waiting[asker.key]:
                del self._waiting[asker.key]

    async def _receive(self, receive: Receive, until: float | None) -> Message:
        try:
            async with asyncio.timeout_at(until):
                return await receive()
        except TimeoutError:
            what = f"the body did not arrive within {self._budget.within_s:g} s"
            raise Refused(408, what, "send it again") from None

    def _check_waiting(self, asker: Asker) -> None:
        most = self._budget.waiting
        if most and self._waiting[asker.key] > most:
            what = f"bodies of {_size(most)} are on their way already"
            raise Refused(429, what, "wait until some have arrived")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Tell of a body that was read, and then of the client's going."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _size(count: int) -> str:
    return f"{count / MIB:g} MiB" if count >= MIB else f"{count / 1024:g} KiB"
