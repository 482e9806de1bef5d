"""What the API answers to admins: tokens, quotas, webhooks, who did what."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from weft.frozen import frozen_by_name
from weft.service.responses.state_words import RoleWord


@frozen_by_name
class TokenAnswer:
    """A token without its secret."""

    id: str
    role: RoleWord
    tenant: str
    name: str
    created: float
    account: str
    expires: float


@frozen_by_name
class NewToken(TokenAnswer):
    """A token with its secret, shown only once."""

    token: str


@frozen_by_name
class TokenList:
    """Every token."""

    tokens: list[TokenAnswer]


@frozen_by_name
class AuditEntry:
    """One request. `token` is empty if there are no tokens or it was not recognised."""

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


@frozen_by_name
class AuditAnswer:
    """Requests that changed something or were refused, oldest first."""

    requests: list[AuditEntry]


@frozen_by_name
class HookAnswer:
    """Where state changes are sent; the secret is not shown."""

    id: str
    url: str
    tenant: str
    states: list[str]
    created: float
    format: Literal["weft", "slack", "mail"]


@frozen_by_name
class NewHook(HookAnswer):
    """A webhook with the secret that signs its messages, shown only once."""

    secret: str


@frozen_by_name
class HookList:
    """Every hook."""

    webhooks: list[HookAnswer]


@frozen_by_name
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


@frozen_by_name
class Reservation:
    """Reserved devices; times in seconds since the epoch, null if open-ended."""

    name: str
    nodes: list[str]
    start: float | None
    end: float | None
    tenant: str
    when_done: bool
    in_force: bool


@frozen_by_name
class ReservationList:
    """All reservations that have not ended."""

    reservations: list[Reservation]
