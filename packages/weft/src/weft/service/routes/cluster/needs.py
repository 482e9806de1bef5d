"""The list of what needs a person."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from weft.service.context import PREFIX, PROBLEMS, Anyone, Service
from weft.service.http.replies import Json
from weft.service.needs import choose
from weft.service.responses.answers import Needs

router = APIRouter(prefix=PREFIX, tags=["cluster"], responses=PROBLEMS)


@router.get("/needs", response_model=Needs)
async def needs(
    service: Service, who: Anyone, tenant: Annotated[str | None, Query(max_length=64)] = None
) -> Json:
    """List what needs a person, each with its next step; of a tenant's jobs, or of everything."""
    every = await service.needs.read()
    seen = every if who.everywhere else [need for need in every if need.tenant == who.tenant]
    return Json(choose(seen, tenant))
