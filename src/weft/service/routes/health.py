"""Whether the service is well, for those who watch it."""

from __future__ import annotations

from fastapi import APIRouter

from weft.service.context import Service
from weft.service.json_body import Json
from weft.service.responses import Health

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=Health)
async def healthz(service: Service) -> Json:
    """Whether the service is ready; needs no token."""
    trouble = service.driver.trouble
    return Json(
        Health(
            status="trouble" if trouble else "ok",
            policy=service.live.policy.text,
            engine=service.live.engine.name,
            jobs=len(service.driver.scheduler.state.table),
            trouble=trouble.partition("\n")[0][:300],
            isolation=service.live.isolation,
        )
    )
