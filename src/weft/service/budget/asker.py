"""The caller that a request is counted for, looked up once and before its body is read."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import Scope

from weft.frozen import frozen
from weft.service.access.tokens import Caller

STRANGERS = "?"  # requests without a token that is known here
Asks = Callable[[Headers], Caller | None]


@frozen
class Asker:
    """Whose limits hold: a tenant's by `key`; admins have none but those of single requests."""

    key: str
    known: bool
    admin: bool


NOBODY = Asker(STRANGERS, known=False, admin=False)


def find_asker(scope: Scope, asks: Asks) -> Asker:
    """Who sent a request, kept with it for later handlers."""
    who = asks(Headers(scope=scope))
    asker = NOBODY if who is None else Asker(who.tenant, known=True, admin=who.admin)
    scope.setdefault("state", {})["asker"] = asker
    return asker


def asker_of(scope: Scope) -> Asker:
    """The caller who sent a request; empty where that was not checked."""
    asker: Asker = scope.get("state", {}).get("asker", NOBODY)
    return asker
