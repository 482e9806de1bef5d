"""Answers of the API to admins: tokens, quotas, webhooks, who did what."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from weft.frozen import frozen_by_name
from weft.service.responses.job_row import RoleWord


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
class PromiseCount:
    """Count of promises of one sort while one policy decided, and of those that were kept."""

    what: str
    who: str
    made: int
    kept: int


@frozen_by_name
class TenantCount:
    """GPU-seconds of a tenant; `met_gpu_seconds` is what it had of its entitlement, in time."""

    tenant: str
    jobs: int
    gpu_seconds: float
    entitled_gpu_seconds: float
    met_gpu_seconds: float


@frozen_by_name
class FindingAnswer:
    """A finding of the judge at a line of the log; `weight` is wrong, doubt or note."""

    check: str
    what: str
    weight: str
    at: float
    line: int
    jobs: list[str]
    text: str


@frozen_by_name
class VerdictAnswer:
    """Promises made from `begin` to `end`, and how much of them held.

    `made` is when that was found out, None if it never was, and `trouble` why it could not be the
    last time. `next` is when it will be again, None if that is left to people; `running` while it
    is. Of many findings the gravest are here.
    """

    made: float | None = None
    took_s: float = 0.0
    trouble: str = ""
    running: bool = False
    next: float | None = None
    events: int = 0
    begin: float = 0.0
    end: float = 0.0
    whole: bool = True
    wrong: int = 0
    doubts: int = 0
    promises: list[PromiseCount] = field(default_factory=list)
    tenants: list[TenantCount] = field(default_factory=list)
    findings: list[FindingAnswer] = field(default_factory=list)


@frozen_by_name
class HookAnswer:
    """The address to which state changes are sent; the secret is not shown.

    `on_request`: only those of jobs that ask for it; `needs`: what needs a person instead.
    """

    id: str
    url: str
    tenant: str
    states: list[str]
    created: float
    format: Literal["weft", "slack", "mail"]
    on_request: bool = False
    needs: bool = False


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
