"""Bodies come in here: counted as they arrive, whole before anyone's turn is taken for them."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.app.serve.rules import TenantLimits
from weft.frozen import frozen
from weft.service.access.tokens import Caller
from weft.service.http.replies import HttpProblem, problem

STRANGERS = "?"  # requests without a token that is known here
Asks = Callable[[Headers], Caller | None]


@frozen
class Asker:
    """The sender of a request: tenants have limits by `key`, admins those of single requests."""

    key: str
    known: bool
    admin: bool


NOBODY = Asker(STRANGERS, known=False, admin=False)


def find_asker(scope: Scope, asks: Asks) -> Asker:
    """Return the sender of a request, kept with it for later handlers."""
    who = asks(Headers(scope=scope))
    asker = NOBODY if who is None else Asker(who.tenant, known=True, admin=who.admin)
    scope.setdefault("state", {})["asker"] = asker
    return asker


def asker_of(scope: Scope) -> Asker:
    """The caller who sent a request; empty where that was not checked."""
    asker: Asker = scope.get("state", {}).get("asker", NOBODY)
    return asker


# A session's body goes on for as long as the session; its streams are counted instead.
ENDLESS = re.compile(r".*/jobs/[^/]+/(terminal|shell|ports/\d+)")


PIECE = 1 << 15  # bytes counted before others have their turn


class Intake:
    """Reads a request's body within its budget, and hands it on whole.

    Answers 413 to one that is too long or holds too much, 408 to one that does not arrive in time,
    and 429 where a tenant has too many on their way.
    """

    def __init__(self, app: ASGIApp, budget: RequestBudget) -> None:
        self._app, self._budget = app, budget
        self._waiting: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or ENDLESS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        asker = asker_of(scope)
        try:
            self._check_announced(scope, asker)
            body = await self._read(receive, asker)
        except HttpProblem as error:
            answer = problem(error.status, error.what, error.hint)
            answer.headers["Connection"] = "close"  # the rest of the body is not read
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
            raise HttpProblem(400, "Content-Length is not a number of bytes", "leave it out")

    def _check_length(self, length: int, asker: Asker) -> None:
        if asker.known:
            most, hint = self._budget.body, "a job file is small; send data otherwise"
        else:
            most, hint = self._budget.strangers_body, "send it with a token"
        if self._budget.body and length > most:
            raise HttpProblem(413, f"the body is longer than {_size(most)}", hint)

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
            raise HttpProblem(413, str(error), "send less at a time") from error
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
            raise HttpProblem(408, what, "send it again") from None

    def _check_waiting(self, asker: Asker) -> None:
        most = self._budget.waiting
        if most and self._waiting[asker.key] > most:
            what = f"bodies of {_size(most)} are on their way already"
            raise HttpProblem(429, what, "wait until some have arrived")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Report a body that was read, and then that the client has gone."""
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


# How deep JSON is and how many values it holds, counted while it arrives and before it is parsed.
#
# A parser builds what it reads: a megabyte of `[` or of `1,` costs it, and the code that checks the
# result, a hundred times that. Here nothing is built, and counting ends where the limit is passed.

_OUTSIDE = re.compile(rb'["\[\]{}]')
_INSIDE = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
_CLOSE, _QUOTE, _BACKSLASH = b"]}", b'"', 0x5C


class TooMuch(Exception):  # noqa: N818 - a verdict, not what broke
    """JSON that is deeper, or holds more, than it may."""


class JsonCount:
    """Counts JSON that comes in parts; `feed` raises TooMuch once there is too much of it.

    What is not JSON is counted all the same: the parser reports what is wrong.
    """

    def __init__(self, nesting: int, values: int) -> None:
        self._nesting, self._most = nesting, values
        self.depth = self.values = 0
        self._in_text = self._escaped = False

    def feed(self, part: bytes) -> None:
        at = self._skip_text(part, 0) if self._in_text else 0
        while (match := _OUTSIDE.search(part, at)) is not None:
            self._add(part.count(b",", at, match.start()))
            at = match.end()
            char = match[0]
            if char == _QUOTE:
                self._in_text = True
                at = self._skip_text(part, at)
            elif char in _CLOSE:
                self.depth -= 1
            else:
                self.depth += 1
                self._add(1)
        self._add(part.count(b",", at))

    def _add(self, values: int) -> None:
        self.values += values
        if self._nesting and self.depth > self._nesting:
            raise TooMuch(f"the body is nested more than {self._nesting} levels deep")
        if self._most and self.values > self._most:
            raise TooMuch(f"the body holds more than {self._most:,} values")

    def _skip_text(self, part: bytes, at: int) -> int:
        """The end of the text that we are in, or of the part."""
        if self._escaped and at < len(part):
            self._escaped, at = False, at + 1
        match = _INSIDE.match(part, at)
        assert match is not None  # it matches nothing, too
        at = match.end()
        if at < len(part) and part[at] == _BACKSLASH:  # the last of this part
            self._escaped = True
            return len(part)
        if at < len(part):
            self._in_text = False
            return at + 1
        return at


# How much one request may cost.

KIB, MIB = 1 << 10, 1 << 20
STRANGERS_BODY = 16 * KIB  # nothing that a person without a token may send is longer
NESTING = 32
VALUES = 100_000
AT_ONCE = 8  # bodies of the longest kind that one tenant may have on their way


@frozen
class RequestBudget:
    """The limits of a request's weight; 0 is no limit.

    `header` and `body` are bytes, `strangers_body` those of a request without a known token, and
    `waiting` those of all bodies that one tenant has on their way. `nesting` and `values` are of
    the body's JSON: how deep its brackets go, and how many values it holds. `within_s` is how long
    the body may take to arrive.
    """

    header: int
    body: int
    within_s: float
    strangers_body: int = STRANGERS_BODY
    nesting: int = NESTING
    values: int = VALUES

    @classmethod
    def of(cls, limits: TenantLimits) -> RequestBudget:
        """Return the limits that the service was configured with."""
        header, body = int(limits.header_kib * KIB), int(limits.body_mib * MIB)
        return cls(header, body, limits.body_s)

    @property
    def waiting(self) -> int:
        """Bytes of bodies that one tenant may have on their way."""
        return AT_ONCE * self.body
