"""Who asks: tokens of tenants with roles, kept as hashes in the state folder.

Tokens are 256 random bits, so a plain SHA-256 of one cannot be turned back; comparison takes the
same time whatever is wrong. Without any token the service answers its own machine only, and
everybody there is an admin.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from weft.app.serve.live import read_private, write_private
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model import Job

Role = Literal["admin", "user", "viewer"]
ROLES: tuple[str, ...] = get_args(Role)
EVERY = "*"
PREFIX = "weft_"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a role; `tenant` EVERY sees the jobs of all.

    `account` is whose rights his jobs have on the machine; empty means his tenant's.
    """

    role: Role
    tenant: str
    name: str = ""
    account: str = ""

    @property
    def admin(self) -> bool:
        """Whether everything is allowed."""
        return self.role == "admin"

    @property
    def everywhere(self) -> bool:
        """Whether all tenants' jobs are visible."""
        return self.admin or self.tenant == EVERY

    def sees(self, job: Job) -> bool:
        """Whether a job may be read."""
        return self.everywhere or job.tenant == self.tenant

    def commands(self, job: Job) -> bool:
        """Whether a job may be cancelled."""
        return self.admin or (self.role == "user" and job.tenant == self.tenant)


ANYBODY = Caller("admin", EVERY, "")


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept: everything but its secret."""

    id: str
    sha256: str
    role: Role
    tenant: str
    name: str = ""
    created: float = 0.0
    account: str = ""

    @property
    def caller(self) -> Caller:
        """Who comes with this token."""
        tenant = EVERY if self.role == "admin" else self.tenant
        return Caller(self.role, tenant, self.name, self.account)


class Tokens:
    """Every token there is, in the file `path`; None keeps them in memory."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        found = read_private(path) if path is not None else None
        self._tokens = _read(path, found) if found is not None else {}

    def __len__(self) -> int:
        return len(self._tokens)

    def all(self) -> list[Token]:
        """Every token, oldest first."""
        return list(self._tokens.values())

    def who(self, secret: str) -> Caller | None:
        """Whose token this is; None for nobody's."""
        given = _hash(secret)
        found: Caller | None = None
        for token in self._tokens.values():  # all of them, so that time says nothing
            if hmac.compare_digest(token.sha256, given):
                found = token.caller
        return found

    def create(self, role: Role, tenant: str, name: str, account: str = "") -> tuple[Token, str]:
        """A new token and its secret, which is not kept."""
        if not tenant and role != "admin":
            raise InvalidConfig(
                f"a token of role {role!r} needs a tenant", hint="'*' lets a viewer see all"
            )
        if tenant == EVERY and role == "user":
            raise InvalidConfig("a user belongs to one tenant", hint="only viewers may have '*'")
        if not self._tokens and role != "admin":
            raise InvalidConfig(
                "the first token must be an admin's: without one nobody could make more",
                hint="create one with role admin",
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        made = self._clock()
        token = Token(secrets.token_hex(4), _hash(secret), role, tenant, name, made, account)
        self._keep({**self._tokens, token.id: token})
        return token, secret

    def revoke(self, token: str) -> None:
        """Make a token worthless; the last admin's goes last."""
        if token not in self._tokens:
            raise UnknownName(f"no token {token!r}", hint="`weft token list` shows all")
        left = {name: one for name, one in self._tokens.items() if name != token}
        if left and not any(one.role == "admin" for one in left.values()):
            raise InvalidConfig(
                "this is the last token of an admin", hint="revoke the other tokens first"
            )
        self._keep(left)

    def _keep(self, tokens: dict[str, Token]) -> None:
        if self._path is not None:
            write_private(self._path, [asdict(token) for token in tokens.values()])
        self._tokens = tokens


def check_host(host: str, tokens: Tokens) -> None:
    """Raise InvalidConfig for an address that others can reach while nobody needs a token."""
    if len(tokens) or is_loopback(host):
        return
    raise InvalidConfig(
        f"will not listen on {host!r} without tokens: anybody could run commands here",
        hint="start on 127.0.0.1, make one with `weft token create --role admin`, start again",
    )


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    if host in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def public(token: Token) -> dict[str, Any]:
    """What may be shown of a token."""
    shown = asdict(replace(token, sha256=""))
    del shown["sha256"]
    return shown


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path | None, found: object) -> dict[str, Token]:
    try:
        tokens = [Token(**one) for one in found]  # type: ignore[attr-defined]
    except (TypeError, KeyError) as error:
        raise InvalidConfig(f"{path} does not hold tokens: {error!r}") from error
    if bad := [one.id for one in tokens if one.role not in ROLES]:
        raise InvalidConfig(f"{path}: token {bad[0]!r} has no known role")
    return {token.id: token for token in tokens}
