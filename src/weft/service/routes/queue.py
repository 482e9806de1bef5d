"""The queue: who starts when, as far as simulations from now on can tell."""

from __future__ import annotations

from fastapi import APIRouter

from weft.app.insight.present import Present
from weft.core.errors import WeftError
from weft.service.context import PROBLEMS, Anyone, Refused, Service
from weft.service.json_body import Json
from weft.service.watch_responses import Queue, Waiting

router = APIRouter(tags=["why"], responses=PROBLEMS)


@router.get("/queue", response_model=Queue)
async def queue(service: Service, who: Anyone) -> Json:
    """Waiting jobs of the caller with their place in line and when they are expected to start.

    Simulated from the present state under the policy that decides; places count all tenants' jobs.
    """
    driver = service.driver
    try:
        found, again_s = await service.forecast.ask(
            lambda: Present.of(driver.scheduler, driver.now)
        )
    except WeftError as error:
        raise Refused(409, error.what, error.hint) from error
    jobs = [
        Waiting(
            id=one.job.id,
            place=one.place,
            p10=one.start.quantile(0.1),
            p50=one.start.quantile(0.5),
            p90=one.start.quantile(0.9),
        )
        for one in found
        if who.sees(one.job)
    ]
    return Json(Queue(jobs=jobs, again_s=again_s))
