"""Tokens of tenants with roles, kept as hashes in the state folder.

Tokens are 256 random bits, so a plain SHA-256 of one cannot be turned back; comparison takes the
same time whatever is wrong. A token may expire; it stays on the list, so that a service whose
tokens have all expired is closed and not open. Without any token the service answers its own
machine only, and everyone there is an admin.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, get_args

from weft.app.serve.private_file import read_private, write_private
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model.job import Job
from weft.frozen import frozen

Role = Literal["admin", "user", "viewer"]
ROLES: tuple[str, ...] = get_args(Role)
EVERY = "*"
PREFIX = "weft_"


@frozen
class Caller:
    """Someone with a role; `tenant` EVERY sees the jobs of all.

    `account` is whose rights his jobs have on the machine; empty means his tenant's.
    """

    role: Role
    tenant: str
    name: str = ""
    account: str = ""
    token: str = ""

    @property
    def admin(self) -> bool:
        """True if everything is allowed."""
        return self.role == "admin"

    @property
    def everywhere(self) -> bool:
        """True if all tenants' jobs are visible."""
        return self.admin or self.tenant == EVERY

    @property
    def word(self) -> str:
        """The name that others read later beside what was done."""
        return self.name or ("an admin" if self.admin else self.tenant)

    def sees(self, job: Job) -> bool:
        """True if a job may be read."""
        return self.everywhere or job.tenant == self.tenant

    def commands(self, job: Job) -> bool:
        """True if a job may be cancelled."""
        return self.admin or (self.role == "user" and job.tenant == self.tenant)


ANYBODY = Caller("admin", EVERY, "")


@frozen
class Token:
    """A token as it is kept: everything but its secret. `expires` 0 is never."""

    id: str
    sha256: str
    role: Role
    tenant: str
    name: str = ""
    created: float = 0.0
    account: str = ""
    expires: float = 0.0

    @property
    def caller(self) -> Caller:
        """The caller who comes with this token."""
        tenant = EVERY if self.role == "admin" else self.tenant
        return Caller(self.role, tenant, self.name, self.account, self.id)

    def valid(self, now: float) -> bool:
        """True if it may be used then."""
        return not self.expires or now < self.expires

    @property
    def lasting_admin(self) -> bool:
        """True if it lets someone make tokens and never expires."""
        return self.role == "admin" and not self.expires


class TokenFile:
    """Every token there is, in the file `path`; None keeps them in memory."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        rows = read_private(path) if path is not None else None
        self._tokens = _read(path, rows) if rows is not None else {}
        self._changes: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def __len__(self) -> int:
        return len(self._tokens)

    def all(self) -> list[Token]:
        return list(self._tokens.values())

    def caller_by_secret(self, secret: str) -> Caller | None:
        """The owner of this token; None if it is unknown."""
        given = _hash(secret)
        caller: Caller | None = None
        for token in self._tokens.values():  # all of them, so that time says nothing
            if hmac.compare_digest(token.sha256, given) and token.valid(self._clock()):
                caller = token.caller
        return caller

    def caller_of(self, token: str) -> Caller | None:
        """The caller with a token, by its id; None if it is gone or has expired."""
        known = self._tokens.get(token)
        return known.caller if known is not None and known.valid(self._clock()) else None

    def allows(self, who: Caller) -> bool:
        """True if someone who was let in may still stay."""
        return self.seconds_left(who) > 0.0

    def seconds_left(self, who: Caller) -> float:
        """Seconds left for a caller: 0 once the token is gone, infinity if it never expires."""
        if not who.token:
            return 0.0 if self._tokens else float("inf")
        token = self._tokens.get(who.token)
        if token is None:
            return 0.0
        return max(token.expires - self._clock(), 0.0) if token.expires else float("inf")

    def change_of(self, who: Caller) -> asyncio.Event:
        """The event that is set when the time that someone may stay has changed."""
        return self._changes[who.token]

    def create(
        self, role: Role, tenant: str, name: str, account: str = "", expires_s: float = 0.0
    ) -> tuple[Token, str]:
        """A new token and its secret, which is not kept; `expires_s` 0 is never."""
        if not tenant and role != "admin":
            raise InvalidConfig(
                f"a token of role {role!r} needs a tenant", hint="'*' lets a viewer see all"
            )
        if tenant == EVERY and role == "user":
            raise InvalidConfig("a user belongs to one tenant", hint="only viewers may have '*'")
        if not self._tokens and (role != "admin" or expires_s):
            raise InvalidConfig(
                "the first token must be an admin's and must not expire: otherwise no one could "
                "create more",
                hint="create one with role admin",
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        made = self._clock()
        until = made + expires_s if expires_s else 0.0
        token = Token(secrets.token_hex(4), _hash(secret), role, tenant, name, made, account, until)
        first = not self._tokens
        self._keep({**self._tokens, token.id: token})
        if first:
            self._tell(ANYBODY.token)
        return token, secret

    def rotate(self, token: str, overlap_s: float) -> tuple[Token, str]:
        """Another secret for a token's rights; the old one expires after `overlap_s` seconds.

        One that was to expire lasts as long again as it was made for.
        """
        old = self._find(token)
        lasts = old.expires - old.created if old.expires else 0.0
        new, secret = self.create(old.role, old.tenant, old.name, old.account, lasts)
        if not overlap_s:
            self.revoke(old.id)
            return new, secret
        end = self._clock() + overlap_s
        until = min(end, old.expires) if old.expires else end
        self._keep({**self._tokens, old.id: replace(old, expires=until)})
        self._tell(old.id)
        return new, secret

    def revoke(self, token: str) -> None:
        """Revoke a token; the last of an admin that does not expire goes last."""
        self._find(token)
        left = {name: other for name, other in self._tokens.items() if name != token}
        if left and not any(other.lasting_admin for other in left.values()):
            raise InvalidConfig(
                "this is the last token of an admin that does not expire",
                hint="revoke the other tokens first",
            )
        self._keep(left)
        self._tell(token)

    def _find(self, token: str) -> Token:
        if token not in self._tokens:
            raise UnknownName(f"no token {token!r}", hint="`weft token list` shows all")
        return self._tokens[token]

    def _tell(self, token: str) -> None:
        self._changes.pop(token, asyncio.Event()).set()

    def _keep(self, tokens: dict[str, Token]) -> None:
        if self._path is not None:
            write_private(self._path, [asdict(token) for token in tokens.values()])
        self._tokens = tokens


def check_host(host: str, tokens: TokenFile) -> None:
    """Raise InvalidConfig for an address that others can reach while no token is needed."""
    if len(tokens) or is_loopback(host):
        return
    raise InvalidConfig(
        f"will not listen on {host!r} without tokens: anyone could run commands here",
        hint="start on 127.0.0.1, make one with `weft token create --role admin`, start again",
    )


def is_loopback(host: str) -> bool:
    """True if an address is of this machine alone."""
    if host in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def public_fields(token: Token) -> dict[str, Any]:
    """The fields of a token that may be shown."""
    shown = asdict(replace(token, sha256=""))
    del shown["sha256"]
    return shown


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path | None, rows: object) -> dict[str, Token]:
    try:
        tokens = [Token(**row) for row in rows]  # type: ignore[attr-defined]
    except (TypeError, KeyError) as error:
        raise InvalidConfig(f"{path} does not hold tokens: {error!r}") from error
    if bad := [token.id for token in tokens if token.role not in ROLES]:
        raise InvalidConfig(f"{path}: token {bad[0]!r} has no known role")
    return {token.id: token for token in tokens}
