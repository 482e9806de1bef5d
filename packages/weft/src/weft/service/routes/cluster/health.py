"""Health of the service, for those who watch it; none of this needs a token."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from weft.service.context import Service
from weft.service.http.replies import Json
from weft.service.responses.answers import Health, HealthCheck, Liveness, Readiness

router = APIRouter(tags=["health"])

LONGEST = 300
DOWN: dict[int | str, dict[str, Any]] = {
    503: {"model": Readiness, "description": "A part does not work; `checks` says which."}
}
STUCK: dict[int | str, dict[str, Any]] = {
    503: {"model": Liveness, "description": "The service cannot work; a restart may help."}
}


@router.get("/healthz", response_model=Health)
async def healthz(service: Service) -> Json:
    """A summary; always 200 while the service answers at all."""
    trouble = service.driver.trouble
    return Json(
        Health(
            status="trouble" if trouble else "ok",
            policy=service.live.policy.text,
            engine=service.live.engine.name,
            jobs=len(service.driver.scheduler.state.table),
            trouble=_short(trouble),
            isolation=service.live.isolation,
        )
    )


@router.get("/health/live", response_model=Liveness, responses=STUCK)
async def live(service: Service) -> Json:
    """The power of the service to write its log; without it 503: restart the service."""
    alive = service.watchdog.alive
    return Json(Liveness(alive=alive), status_code=200 if alive else 503)


@router.get("/health/ready", response_model=Readiness, responses=DOWN)
async def ready(service: Service) -> Json:
    """The state of engine, log, lease, decisions and loop.

    503 and which do not work if some do not.
    """
    checks = [
        HealthCheck(part=name, ok=check.ok, said=text, message=text)
        for name, check in service.watchdog.checks().items()
        for text in (_short(check.message),)
    ]
    well = all(check.ok for check in checks)
    return Json(Readiness(ready=well, checks=checks), status_code=200 if well else 503)


def _short(text: str) -> str:
    return text.partition("\n")[0][:LONGEST]
