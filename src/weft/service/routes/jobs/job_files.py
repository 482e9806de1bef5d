"""Jobs as files: what one would be written as, one submitted again, a text as fields."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError

from weft.app.yaml_file import dump_yaml, parse_aside
from weft.core.errors import did_you_mean
from weft.service.context import PROBLEMS, Anyone, Service, Writer, find_job
from weft.service.http.json_body import Json
from weft.service.http.refusals import Refused
from weft.service.requests.job_as_file import file_again, file_of
from weft.service.requests.job_file import JobFile
from weft.service.requests.request_base import RequestBody
from weft.service.responses.answers import Made
from weft.service.responses.watch import JobText
from weft.service.routes.jobs.jobs import hand_in

router = APIRouter(tags=["jobs"], responses=PROBLEMS)

MOST_TEXT = 262_144


class AskAgain(RequestBody):
    """What to change: fields of a job file; null removes a field.

    With `replace`, the old job is cancelled once the new one is submitted.
    """

    change: dict[str, Any] = Field(default_factory=dict, max_length=64)
    replace: bool = False


class AskText(RequestBody):
    """A job file as people write it: YAML or JSON."""

    text: Annotated[str, Field(min_length=1, max_length=MOST_TEXT)]


@router.get("/jobs/{job_id}/file", response_model=JobText)
async def job_file(job_id: str, service: Service, who: Anyone) -> Json:
    """A job as a job file; the values of its variables are shown as stars."""
    fields = file_of(find_job(service, who, job_id).record.job)
    return Json(JobText(job=fields, yaml=dump_yaml(fields)))


@router.post("/job-file", response_model=JobText)
async def read_job_file(body: AskText, service: Service, who: Writer) -> Json:  # noqa: ARG001 - who may submit
    """Parse the text of a job file into its fields; nothing is queued."""
    fields = await service.work.parse.do(lambda: partial(parse_aside, body.text))
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise Refused(422, "a job file holds `field: value` lines", "see `weft submit --help`")
    return Json(JobText(job=fields, yaml=body.text))


@router.post("/jobs/{job_id}/again", status_code=201, response_model=Made)
async def again(
    job_id: str, body: AskAgain, request: Request, service: Service, who: Writer
) -> Json:
    """Submit a job again, as it was or with changes.

    Secrets are not copied, and a colleague's variables are not either: bring them in `change`.
    """
    job = find_job(service, who, job_id).record.job
    if not who.commands(job):
        raise Refused(403, "this job is another tenant's", "ask an admin")
    fields = file_again(job, body.change, who)
    try:
        asked = JobFile.model_validate(fields)
    except ValidationError as error:
        raise _say(error) from error
    answer = await hand_in(asked, request, service, who)
    if body.replace:
        await service.driver.cancel(job.id)
    return answer


def _say(error: ValidationError) -> Refused:
    """The first mistake of a changed job, with the field and what may have been meant."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        close = did_you_mean(field, JobFile.model_fields)
        return Refused(422, f"a job file has no field {field!r}{close}", "leave it out", field)
    return Refused(422, f"{field}: {first['msg']}", "see the how-to page of job files", field)
