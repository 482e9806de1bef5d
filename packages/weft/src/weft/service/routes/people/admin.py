"""Routes for admins alone: tokens, quotas, webhooks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AfterValidator, Field

from weft.core.errors import UnknownName
from weft.runtime.loop.driver import Driver
from weft.service.access.tokens import public_fields
from weft.service.context import PREFIX, PROBLEMS, Admin, Context, Service
from weft.service.http.replies import Json
from weft.service.notify.webhooks import Hook
from weft.service.requests.fields import RequestBody, Word, printable
from weft.service.responses.admin import (
    HookAnswer,
    HookList,
    NewHook,
    NewToken,
    QuotaAnswer,
    TokenAnswer,
    TokenList,
)
from weft.service.responses.answers import Done
from weft.service.responses.job_row import StateWord

router = APIRouter(prefix=PREFIX, tags=["admin"], responses=PROBLEMS)

Limited = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@[A-Za-z][\w.-]{0,63})?$")
]
Amount = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=1e-3, le=1e6, allow_inf_nan=False)]


class AskToken(RequestBody):
    """A token for a tenant; `*` lets a viewer see all tenants.

    Admins need none. Jobs submitted with it run as the user of `account`, if the service maps
    accounts to users.
    """

    role: Literal["admin", "user", "viewer"] = "user"
    tenant: Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")] = ""
    name: Annotated[str, Field(max_length=128), AfterValidator(printable)] = ""
    account: Word | None = None
    expires_s: Annotated[float, Field(gt=0.0, le=1e10, allow_inf_nan=False)] | None = None


class AskRotation(RequestBody):
    """The time for which the old secret keeps working beside the new one."""

    overlap_s: Annotated[float, Field(ge=0.0, le=1e10, allow_inf_nan=False)] = 86_400.0


class AskQuotas(RequestBody):
    """All rules at once: a tenant that is not named has no limit, weight 1 and no guaranteed GPUs.

    GPUs in `own` belong to tenants and groups, are lent while idle and taken back when needed;
    `parents` names the group of a tenant or group. Past use counts half after `half_life_s`, and a
    job runs for `min_run_s` before it has to give GPUs back.
    """

    limits: dict[Limited, Amount] = Field(default_factory=dict, max_length=1000)
    weights: dict[Word, Weight] = Field(default_factory=dict, max_length=1000)
    guaranteed: dict[Word, Amount] = Field(default_factory=dict, max_length=1000)
    own: dict[Word, Amount] = Field(default_factory=dict, max_length=1000)
    parents: dict[Word, Word] = Field(default_factory=dict, max_length=1000)
    half_life_s: Annotated[float, Field(ge=1.0, le=1e10, allow_inf_nan=False)] | None = None
    min_run_s: Annotated[float, Field(ge=0.0, le=1e8, allow_inf_nan=False)] | None = None


class AskHook(RequestBody):
    """The address to which state changes are sent; without a secret, one is created.

    `format` is `weft` (signed JSON) or `slack` (one line, for Slack and compatible chats); an
    address that begins with `mailto:` gets mail. One `on_request` is notified of jobs that ask for
    it by `notify`, and of their ends where no states are given. One for `needs` is notified of
    what needs a person instead, each once, with its next step.
    """

    url: Annotated[str, Field(min_length=8, max_length=2000)]
    format: Literal["weft", "slack", "mail"] = "weft"
    tenant: Word | None = None
    states: Annotated[list[StateWord], Field(max_length=10)] = Field(default_factory=list)
    secret: Annotated[str, Field(min_length=16, max_length=200)] | None = None
    on_request: bool = False
    needs: bool = False


@router.get("/tokens", response_model=TokenList)
async def tokens(service: Service, who: Admin) -> Json:  # noqa: ARG001 - admins only
    """Every token, without secrets."""
    return Json(
        TokenList(tokens=[TokenAnswer(**public_fields(token)) for token in service.tokens.all()])
    )


@router.post("/tokens", status_code=201, response_model=NewToken)
async def create_token(body: AskToken, service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Create a token; its secret is shown only once. The first token must be an admin's."""
    account = body.account or ""
    if account and account not in service.live.users:
        raise UnknownName.among("account", account, service.live.users, "the file of --users")
    lasts_s = body.expires_s or 0.0
    token, secret = service.tokens.create(body.role, body.tenant, body.name, account, lasts_s)
    return Json(NewToken(**public_fields(token), token=secret), status_code=201)


@router.post("/tokens/{token_id}/rotate", status_code=201, response_model=NewToken)
async def rotate_token(token_id: str, body: AskRotation, service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Create a new token with the same rights; the old one works until the overlap ends."""
    token, secret = service.tokens.rotate(token_id, body.overlap_s)
    return Json(NewToken(**public_fields(token), token=secret), status_code=201)


@router.delete("/tokens/{token_id}", response_model=Done)
async def revoke_token(token_id: str, service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Revoke a token at once."""
    service.tokens.revoke(token_id)
    return Json(Done(done=f"token {token_id} is revoked"))


@router.get("/quotas", response_model=QuotaAnswer)
async def quotas(service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Limits and weights of tenants, with what they hold now."""
    return Json(_quotas(service))


@router.put("/quotas", response_model=QuotaAnswer)
async def set_quotas(body: AskQuotas, service: Service, who: Admin) -> Json:
    """Replace the rules. Limits do not stop running jobs; owners take back their own GPUs."""
    rules = replace(
        service.live.quotas,
        limits=dict(body.limits),
        weights=dict(body.weights),
        guaranteed=dict(body.guaranteed),
        own=dict(body.own),
        parents=dict(body.parents),
        half_life_s=body.half_life_s,
        min_run_s=body.min_run_s,
    )
    await service.live.set_quotas(rules, who.word)
    return Json(_quotas(service))


@router.get("/webhooks", response_model=HookList)
async def webhooks(service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Every webhook, without secrets."""
    return Json(HookList(webhooks=[HookAnswer(**_public(hook)) for hook in service.hooks.all()]))


@router.post("/webhooks", status_code=201, response_model=NewHook)
async def create_webhook(body: AskHook, service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Notify an address of state changes from now on; messages are signed with the secret."""
    states = tuple(dict.fromkeys(body.states))
    terms = (body.tenant or "", states, body.secret or "", body.format)
    hook = service.hooks.add(body.url, *terms, on_request=body.on_request, needs=body.needs)
    return Json(NewHook(**_public(hook), secret=hook.secret), status_code=201)


@router.delete("/webhooks/{hook_id}", response_model=Done)
async def remove_webhook(hook_id: str, service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Stop notifying it."""
    service.hooks.remove(hook_id)
    return Json(Done(done=f"webhook {hook_id} is removed"))


def _public(hook: Hook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "url": hook.url,
        "tenant": hook.tenant,
        "states": list(hook.states),
        "created": hook.created,
        "format": hook.format,
        "on_request": hook.on_request,
        "needs": hook.needs,
    }


def _quotas(service: Context) -> QuotaAnswer:
    rules, held = service.live.quotas, count_held_by_tenant(service.driver)
    return QuotaAnswer(
        limits=dict(rules.limits),
        weights=dict(rules.weights),
        guaranteed=dict(rules.guaranteed),
        held=dict(held),
        own=dict(rules.own),
        parents=dict(rules.parents),
        half_life_s=rules.half_life_s,
        min_run_s=rules.min_run_s,
    )


def count_held_by_tenant(driver: Driver) -> defaultdict[str, float]:
    """GPUs promised, by tenant, shares counted as such."""
    table = driver.scheduler.state.table
    held: defaultdict[str, float] = defaultdict(float)
    for job, on in zip(table.jobs, table.allocations, strict=True):
        if on is not None:
            held[job.tenant] += on.counted_gpus
    return held
