"""Jobs as files: what one would be written as, one submitted again, a text as fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError

from weft.app.files import dump_yaml, parse_aside
from weft.core.errors import did_you_mean
from weft.core.model.job import Job, Tier, name_of, priority_word
from weft.core.model.launch import Launch
from weft.run_terms import DEFAULT_GRACE_S, RunTerms
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Service, Writer, find_job
from weft.service.http.replies import HttpProblem, Json
from weft.service.requests.fields import RequestBody, share_field
from weft.service.requests.job_file import HIDDEN, SHELL, JobFile
from weft.service.responses.answers import Made
from weft.service.responses.watch import JobText
from weft.service.routes.jobs.jobs import accept_job

router = APIRouter(prefix=PREFIX, tags=["jobs"], responses=PROBLEMS)

MOST_TEXT = 262_144
Fields = dict[str, Any]
SHOWN = 5
UNSAID = RunTerms().terms()


class AskAgain(RequestBody):
    """Changes of a job file's fields; null removes a field.

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
        raise HttpProblem(422, "a job file holds `field: value` lines", "see `weft submit --help`")
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
        raise HttpProblem(403, "this job is another tenant's", "ask an admin")
    fields = file_again(job, body.change, who)
    try:
        asked = JobFile.model_validate(fields)
    except ValidationError as error:
        raise _say(error) from error
    answer = await accept_job(asked, request, service, who)
    if body.replace:
        await service.driver.cancel(job.id)
    return answer


def _say(error: ValidationError) -> HttpProblem:
    """The first mistake of a changed job, with the field and what may have been meant."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        close = did_you_mean(field, JobFile.model_fields)
        return HttpProblem(422, f"a job file has no field {field!r}{close}", "leave it out", field)
    return HttpProblem(422, f"{field}: {first['msg']}", "see the how-to page of job files", field)


# ---- A job as the file that would describe it: to copy, to change and to submit again
#
# The service gives the values of its variables only to the job. To submit it again, users bring
# their own: a new command could print them.


def file_again(job: Job, change: Mapping[str, Any], who: Caller) -> Fields:
    """The file of a job with some fields changed, as `who` may submit it; None takes one away.

    Variables that are not secret are copied for the person who chose them; other values have to
    be in `change`. Refused says which. One that is starred out there is copied, too.
    """
    fields = {**file_of(job), **change}
    if who.admin and "user" not in change:  # a word that its user chose is no admin's
        fields["user"] = (job.launch.owner if job.launch is not None else "") or None
    if job.launch is not None and "env" not in change:
        fields["env"] = _copy_env(job.launch, who, job.user, job.launch.env)
    elif job.launch is not None and isinstance(env := change["env"], dict):
        starred = [name for name in job.launch.env if env.get(name) == HIDDEN]
        fields["env"] = {**env, **_copy_env(job.launch, who, job.user, starred)}
    if "secrets" not in change and (env := fields.get("env")) is not None:
        fields["secrets"] = [name for name in fields.get("secrets", ()) if name in env]
    if fields.get("env") is None:
        fields.pop("secrets", None)
    return {name: value for name, value in fields.items() if value is not None}


def _copy_env(launch: Launch, who: Caller, user: str, names: Iterable[str]) -> dict[str, str]:
    own = who.name == user and (bool(who.name) or not who.token)
    missing = [name for name in names if launch.is_secret(name) or not own]
    if missing:
        raise HttpProblem(
            422,
            f"values of variables are not copied: {', '.join(missing[:SHOWN])}"
            f"{' and more' if len(missing) > SHOWN else ''}",
            'bring your own in `change`: {"env": {"NAME": "value"}}; null leaves all out',
            "env",
        )
    return {name: launch.env[name] for name in names}


def file_of(job: Job) -> Fields:
    """Fields of a job file, those that differ from their defaults, without values of variables."""
    fields: Fields = {"name": name_of(job), **_demand(job)}
    if job.batch is not None:
        fields["batch"] = {"init": job.batch.init, "max": job.batch.max}
        if job.batch.max_per_gpu != job.batch.max:
            fields["batch"]["max_per_gpu"] = job.batch.max_per_gpu
    if job.launch is not None:
        fields |= _launch(job.launch)
    implied = not job.demand.rigid or "batch" in fields or "checkpoint" in fields
    filler = job.tier is Tier.OPPORTUNISTIC and not job.preemptible
    after = {word: list(names) for word, names in _after(job) if names}
    more = {
        "tenant": job.tenant,
        "user": job.user or None,
        "model": job.model,
        "priority": priority_word(job),
        "plans": [plan.text for plan in job.plans],
        "cpus": job.cpus if job.demand.max else None,
        "mem_gb": job.mem_gb,
        "hints": dict(job.hints),
        "app": job.app or None,
        "max_parallel": job.max_parallel or None,
        "after": after,
        "preemptible": None if job.preemptible == implied or filler else job.preemptible,
    }
    return {**fields, **{key: value for key, value in more.items() if _is_set(key, value)}}


def _is_set(key: str, value: object) -> bool:
    default = JobFile.model_fields[key].default
    return value not in (None, "", {}, []) and value != default


def _after(job: Job) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("ok", job.after.ok), ("any", job.after.any), ("not_ok", job.after.not_ok)


def _demand(job: Job) -> Fields:
    demand = job.demand
    fields: Fields = {
        "gpus": demand.gpus if demand.rigid else {"min": demand.min, "max": demand.max}
    }
    if demand.kinds:
        fields["kinds"] = list(demand.kinds)
    fields |= share_field(job, priority_word(job))
    if demand.nodes:
        fields["nodes"] = demand.nodes
    return fields


def _launch(launch: Launch) -> Fields:
    checkpoint: Fields = {"dir": launch.checkpoint} if launch.checkpoint else {}
    if launch.grace_s != DEFAULT_GRACE_S:
        checkpoint["grace_s"] = launch.grace_s
    processes: str | int = launch.processes.value
    fields: Fields = {
        **_command(launch),
        **{name: value for name, value in launch.terms().items() if value != UNSAID[name]},
        "workdir": launch.workdir,
        "env": dict.fromkeys(launch.env, HIDDEN),
        "secrets": list(launch.secrets),
        "checkpoint": checkpoint,
        "processes": 1 if processes == "1" else processes,
        "metrics": list(launch.metrics),
        "notify": list(launch.notify),
        "artifacts": launch.artifacts,
        "retry_on": list(launch.retry_on),
        "retries": launch.retries,
        "backoff_s": launch.backoff_s,
        "idle_timeout_s": launch.idle_s if launch.pty else None,
    }
    if launch.software is not None:
        volumes = {"volumes": [*launch.software.volumes]} if launch.software.volumes else {}
        fields["environment"] = {launch.software.kind.value: launch.software.name, **volumes}
    return {
        key: value
        for key, value in fields.items()
        if key in JobFile.model_fields and _is_set(key, value)
    }


def _command(launch: Launch) -> Fields:
    words = launch.command
    if words[: len(SHELL)] == SHELL and len(words) == len(SHELL) + 1:
        return {"run": words[-1]}
    return {"command": list(words)} if words else {}
