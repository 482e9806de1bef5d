"""The queue: which job starts when, as far as simulations from now on can tell."""

from __future__ import annotations

from fastapi import APIRouter, Response

from weft.app.insight.present import Present
from weft.core.errors import WeftError
from weft.service.context import PROBLEMS, Anyone, Service
from weft.service.http.json_body import Json, write_json
from weft.service.http.refusals import Refused
from weft.service.jobs.forecast import EVERYBODY
from weft.service.responses.watch import Queue

router = APIRouter(tags=["why"], responses=PROBLEMS)


@router.get("/queue", response_model=Queue)
async def queue(service: Service, who: Anyone) -> Response:
    """The caller's waiting jobs, with their place in the queue and expected start.

    Simulated from the present state under the policy that decides; places count all tenants' jobs.
    """
    driver = service.driver
    whose = EVERYBODY if who.everywhere else who.tenant
    try:
        jobs, again_s = await service.forecast.ask(
            whose, lambda: Present.of(driver.scheduler, driver.now)
        )
    except WeftError as error:
        raise Refused(409, error.what, error.hint) from error
    body = b'{"jobs":%b,"again_s":%b}' % (jobs, write_json(again_s))
    return Response(body, media_type=Json.media_type)
