"""The audit log, for admins."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from weft.service.access.audit import AuditFilter
from weft.service.context import PREFIX, PROBLEMS, Admin, Service
from weft.service.http.replies import Json
from weft.service.responses.admin import AuditAnswer

router = APIRouter(prefix=PREFIX, tags=["admin"], responses=PROBLEMS)

Moment = Annotated[float | None, Query(ge=0.0, le=1e12, description="Seconds since 1970.")]
Text = Annotated[str, Query(max_length=200)]


@router.get("/audit", response_model=AuditAnswer)
async def audit(
    service: Service,
    who: Admin,  # noqa: ARG001 - admins only
    since: Moment = None,
    until: Moment = None,
    name: Annotated[str, Query(max_length=200, description="Of a token, or its id.")] = "",
    tenant: Text = "",
    about: Annotated[str, Query(max_length=200, description="Part of a path or id.")] = "",
    failed: Annotated[bool, Query(description="Only refused requests.")] = False,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> Json:
    """The latest requests that changed something or were refused, oldest first."""
    last = float("inf") if until is None else until
    wanted = AuditFilter(since or 0.0, last, name, tenant, about, failed)
    entries = await asyncio.to_thread(service.audit.find, wanted, limit)
    return Json(AuditAnswer(requests=entries))
