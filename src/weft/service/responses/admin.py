"""What the API answers to admins: tokens, quotas, webhooks, who did what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from weft.service.responses.state_words import RoleWord


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAnswer:
    """A token without its secret."""

    id: str
    role: RoleWord
    tenant: str
    name: str
    created: float
    account: str
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(TokenAnswer):
    """A token with its secret, shown this once."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenList:
    """Every token."""

    tokens: list[TokenAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One request. `token` is empty where there are none, or it was not known."""

    at: float
    token: str
    name: str
    role: str
    tenant: str
    address: str
    method: str
    path: str
    about: str
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnswer:
    """Requests that changed something or were refused to, oldest first."""

    requests: list[AuditEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """Where state changes are told; the secret is not shown."""

    id: str
    url: str
    tenant: str
    states: list[str]
    created: float
    format: Literal["weft", "slack", "mail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHook(HookAnswer):
    """A hook with the secret its messages are signed with, shown this once."""

    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookList:
    """Every hook."""

    webhooks: list[HookAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAnswer:
    """GPUs held at once (`tenant` or `tenant@kind`) and weights, with what is held now.

    `guaranteed` is what a tenant's jobs of that priority may ask for together. `own` are GPUs of
    tenants and groups that are lent while idle, `parents` the groups.
    """

    limits: dict[str, float]
    weights: dict[str, float]
    guaranteed: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    half_life_s: float | None = None
    min_run_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Devices that are kept; times in seconds since the epoch, null where there is no edge."""

    name: str
    nodes: list[str]
    start: float | None
    end: float | None
    tenant: str
    when_done: bool
    in_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationList:
    """All that are not over."""

    reservations: list[Reservation]
