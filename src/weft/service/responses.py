"""What the API answers, as documented types; bodies are made by hand and checked by tests."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

StateWord = Literal[
    "pending",
    "starting",
    "running",
    "checkpointing",
    "preempted",
    "succeeded",
    "failed",
    "cancelled",
    "unknown",
]


class Json(Response):
    """JSON in ASCII, whatever texts people sent; numbers that JSON has no word for are null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        try:
            text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))
        return text.encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(held) for held in value]
    return value


class Problem(BaseModel):
    """What went wrong and what mends it."""

    error: str
    hint: str = ""
    field: str = ""


class Health(BaseModel):
    """Whether the service is ready."""

    status: Literal["ok", "trouble"]
    policy: str
    engine: str
    jobs: int
    trouble: str = ""
    isolation: Literal["users", "none", ""] = ""


class Made(BaseModel):
    """The id of a job that is on disk."""

    id: str


class Part(BaseModel):
    """Devices of one node."""

    node: str
    gpus: list[int]
    kind: str
    share: float


class GpuRange(BaseModel):
    """What a job asks for."""

    asked: int
    min: int
    max: int


class Notice(BaseModel):
    """Something a person should read."""

    at: float
    level: str
    text: str


class JobAnswer(BaseModel):
    """One job; times in seconds since the epoch.

    `silent_s` is for how long a running job that used to report has not, if that is remarkable:
    it may hang, or its machine may be out of reach.
    """

    id: str
    name: str
    tenant: str
    user: str
    state: StateWord
    reason: str
    allocation: list[Part] | None
    restarts: int
    attempt: int
    failures: int
    submitted: float
    started: float | None
    ended: float | None
    gpu_seconds: float
    progress: float | None
    batch: float | None
    goodput: float | None
    speed: float | None
    gpus: GpuRange
    kinds: list[str]
    model: str
    preemptible: bool
    priority: Literal["guaranteed", "normal", "opportunistic"]
    command: list[str]
    saved_step: int | None
    silent_s: float | None = None
    notices: list[Notice]


class JobList(BaseModel):
    """A page of jobs in order of submission; `next` is what `after` continues from."""

    jobs: list[JobAnswer]
    next: str | None


class Events(BaseModel):
    """Events of the log."""

    events: list[dict[str, Any]]


class Start(BaseModel):
    """Seconds from now until a start, from simulations of the present state.

    `p90` is null where fewer than nine in ten simulations reached a start.
    """

    p10: float | None
    p50: float | None
    p90: float | None
    simulations: int


class Ahead(BaseModel):
    """A job in front. Names of other tenants' jobs are not told."""

    id: str
    name: str
    tenant: str
    state: str
    gpus: float


class Change(BaseModel):
    """What would start a job now, tried on a copy of the present state."""

    text: str
    fields: dict[str, Any]


class Explanation(BaseModel):
    """Why a job waits, or holds what it holds."""

    id: str
    state: StateWord
    reason: str
    numbers: dict[str, Any]
    ahead: list[Ahead]
    cheapest_change: Change | None
    start: Start | None
    holds: list[Part] | None


class Planned(BaseModel):
    """What would happen to a job now."""

    starts_now: bool
    allocation: list[Part] | None
    displaces: list[Ahead]
    reason: str
    start: Start | None


class NodeAnswer(BaseModel):
    """One machine."""

    id: str
    state: Literal["up", "drained", "down"]
    kind: str
    gpus: int
    held: int
    cpus: float
    mem_gb: float
    rack: str


class Nodes(BaseModel):
    """Every machine."""

    nodes: list[NodeAnswer]


class Done(BaseModel):
    """It was done."""

    done: str


class PolicyAnswer(BaseModel):
    """What decides."""

    policy: str


class Counts(BaseModel):
    """Devices of one kind."""

    gpus: int
    held: float


class ClusterAnswer(BaseModel):
    """The whole; `held` counts devices, `goodput` useful samples a second."""

    now: float
    policy: str
    engine: str
    trouble: str
    nodes: int
    gpus: int
    held: float
    kinds: dict[str, Counts]
    jobs: dict[str, int]
    waiting: int
    running: int
    goodput: float
    decisions: int
    seq: int
    warnings: list[str]


class Comparison(BaseModel):
    """The log's jobs replayed under each policy; metrics as in `docs/reference/result.md`."""

    policies: dict[str, dict[str, float | None]]
    jobs: int
    hours: float
    note: str


class Used(BaseModel):
    """What one job used."""

    id: str
    name: str
    tenant: str
    user: str
    state: str
    submitted: float
    started: float | None
    ended: float | None
    restarts: int
    gpu_seconds: float


class Tenant(BaseModel):
    """What one tenant used."""

    tenant: str
    jobs: int
    gpu_seconds: float


class Accounts(BaseModel):
    """GPU time by tenant and by job, up to `now`."""

    now: float
    tenants: list[Tenant]
    jobs: list[Used]


class TokenAnswer(BaseModel):
    """A token without its secret."""

    id: str
    role: Literal["admin", "user", "viewer"]
    tenant: str
    name: str
    created: float
    account: str


class NewToken(TokenAnswer):
    """A token with its secret, shown this once."""

    token: str


class TokenList(BaseModel):
    """Every token."""

    tokens: list[TokenAnswer]


class HookAnswer(BaseModel):
    """Where state changes are told; the secret is not shown."""

    id: str
    url: str
    tenant: str
    states: list[str]
    created: float


class NewHook(HookAnswer):
    """A hook with the secret its messages are signed with, shown this once."""

    secret: str


class HookList(BaseModel):
    """Every hook."""

    webhooks: list[HookAnswer]


class QuotaAnswer(BaseModel):
    """GPUs held at once (`tenant` or `tenant@kind`) and weights, with what is held now.

    `guaranteed` is what a tenant's jobs of that priority may ask for together.
    """

    limits: dict[str, float]
    weights: dict[str, float]
    guaranteed: dict[str, float] = Field(default_factory=dict)
    held: dict[str, float] = Field(default_factory=dict)
