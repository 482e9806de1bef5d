"""Sign-ins of the web page: a cookie that no script can read stands for a token.

The token itself is not kept by the browser. A session is 256 random bits of its own, kept here as
a hash; it ends after some hours, with its token, or when its person signs out. The browser sends
cookies by itself, also when a page of someone else asks it to: so a session counts only together
with a header that no page of another site can add.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import Headers

from weft.app.serve.private_file import read_private, write_private
from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft.service.access.tokens import ANYBODY, Caller, TokenFile

COOKIE = "weft_session"
PAGE_HEADER = "x-weft-page"
LASTS_S = 12 * 3600.0
MOST = 1_000  # the oldest goes first
MOST_OF_ONE = 20  # of one token, whose oldest goes first: no one signs others out


@frozen
class PageSession:
    """A session as it is kept: everything but its secret."""

    sha256: str
    token: str
    until: float


class PageSessions:
    """Every session, in the file `path`; None keeps them in memory."""

    def __init__(
        self, path: Path | None, tokens: TokenFile, clock: Callable[[], float] = time.time
    ) -> None:
        self._path, self._tokens, self._clock = path, tokens, clock
        self._open = {} if path is None else _read(path)

    def begin(self, who: Caller) -> str:
        """A new session for someone who came with a token: its secret, which is not kept."""
        secret = secrets.token_urlsafe(32)
        now = self._clock()
        left = {key: session for key, session in self._open.items() if session.until > now}
        own = [key for key, session in left.items() if session.token == who.token]
        for key in own[: max(len(own) + 1 - MOST_OF_ONE, 0)]:
            del left[key]
        for key in [*left][: max(len(left) + 1 - MOST, 0)]:
            del left[key]
        made = PageSession(_hash(secret), who.token, now + LASTS_S)
        self._keep({**left, made.sha256: made})
        return secret

    def end(self, headers: Headers) -> None:
        """Sign out; without a session, do nothing."""
        key = _hash(_cookie(headers))
        if key in self._open:
            self._keep({name: session for name, session in self._open.items() if name != key})

    def caller_of(self, headers: Headers) -> Caller | None:
        """The caller of a request by its token or its session; None where that is not known."""
        scheme, secret = get_authorization_scheme_param(headers.get("authorization"))
        if scheme:
            bearer = scheme.lower() == "bearer" and secret
            return self._tokens.caller_by_secret(secret) if bearer else None
        if PAGE_HEADER not in headers:
            return None
        session = self._open.get(_hash(_cookie(headers)))
        if session is None or session.until <= self._clock():
            return None
        return self._tokens.caller_of(session.token)

    def _keep(self, sessions: dict[str, PageSession]) -> None:
        if self._path is not None:
            write_private(self._path, [asdict(session) for session in sessions.values()])
        self._open = sessions


def find_caller(sessions: PageSessions, tokens: TokenFile, headers: Headers) -> Caller | None:
    """The caller of a request; anyone where there are no tokens, None where it is not known."""
    return sessions.caller_of(headers) if len(tokens) else ANYBODY


def _cookie(headers: Headers) -> str:
    """The secret of a session; cookies of others are not looked into.

    Ours is never quoted: unquoting what someone sends takes time that grows with its square.
    """
    cookies: str = headers.get("cookie", "")
    for pair in cookies.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> dict[str, PageSession]:
    rows = read_private(path) or []
    try:
        sessions = [PageSession(**row) for row in rows]
    except TypeError as error:
        raise InvalidConfig(f"{path} does not hold sessions: {error}", hint="remove it") from error
    return {session.sha256: session for session in sessions}
