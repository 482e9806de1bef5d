"""A job file as the API takes it, and the job it describes.

Everything a tenant sends is checked here, once: what comes out is safe to name files by, to show
and to store. Commands and variables are anyone's own business: they never meet a shell.

`${name}` of a parameter is replaced by its value in texts of the file; what else is in `${...}` is
left to its reader. Each job also finds its values in `WEFT_SWEEP_NAME` variables.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from weft.core.errors import InvalidConfig
from weft.core.model.execution import read_execution
from weft.core.model.job import PRIORITIES, BatchRange, Demand, Job, JobId, Or, PriorityWord, Tier
from weft.core.model.launch import Launch
from weft.core.model.search import SearchTerms
from weft.run_terms import DEFAULT_GRACE_S, Processes, RunTerms
from weft.service.requests.fields import (
    LONGEST_NAME,
    CheckpointPlace,
    Count,
    CountOrNone,
    Cpus,
    ExitCode,
    FilePath,
    FolderBelow,
    JobWord,
    MemGb,
    MetricPatterns,
    Name,
    Notify,
    Number,
    PlanText,
    Positive,
    RequestBody,
    Sharing,
    SoftwareFields,
    Text,
    TrafficFields,
    Variable,
    Whole,
    Word,
    part_of,
    printable,
    software_of,
    takes_fields_of,
    terms_of,
)
from weft.service.requests.sweep import Sweep, combinations

GUARANTEED: Literal["guaranteed"] = "guaranteed"
TIERS: dict[PriorityWord, Tier] = dict.fromkeys(("spot", "opportunistic"), Tier.OPPORTUNISTIC)
LONGEST_SWEEP_ID = 60  # its jobs' ids have a number more
DEFAULT_IDLE_S = 3600.0
DEFAULT_TENANT = "default"
HIDDEN = "********"  # in place of a variable's value
TERMS = frozenset(each.name for each in fields(RunTerms))
NO_PARAMETERS: Mapping[str, str] = {}
# A line that fails ends a script, also in the middle of a pipe.
SHELL = ("bash", "-eo", "pipefail", "-c")
SHELL_WORDS = frozenset(
    ("|", "||", "&&", "&", ";", "<", ">", ">>", "2>", "2>>", "2>&1", "&>", "|&")
)

PolicyText = Annotated[str, Field(min_length=1, max_length=500)]


class PartFields(RequestBody):
    """A part by name, with parameters."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    params: dict[str, Any] = Field(default_factory=dict, max_length=100)


class PolicySpec(PartFields):
    """A policy as fields; `wrappers` are listed outermost first."""

    wrappers: list[PartFields] = Field(default_factory=list, max_length=20)


def describe_policy(policy: str | PolicySpec) -> str | dict[str, Any]:
    """A policy as the registry reads it."""
    return policy if isinstance(policy, str) else policy.model_dump()


class Gpus(RequestBody):
    """An elastic job: any count from `min` to `max`."""

    min: Count = 1
    max: Count

    @model_validator(mode="after")
    def _ordered(self) -> Gpus:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class BatchLimits(RequestBody):
    """Global batch sizes that the job may train with; `max_per_gpu` is what fits on one GPU."""

    init: Count
    max: Count
    max_per_gpu: Count | None = None

    @model_validator(mode="after")
    def _ordered(self) -> BatchLimits:
        if self.init > self.max:
            raise ValueError(f"init {self.init} is above max {self.max}")
        return self


class Checkpoint(RequestBody):
    """The folder of the job's checkpoints, and how long a stop may take."""

    dir: CheckpointPlace = ""
    grace_s: Annotated[float, Field(ge=0.0, le=86_400.0, allow_inf_nan=False)] = DEFAULT_GRACE_S


JobNames = Annotated[list[Name], Field(max_length=1000)]


class After(RequestBody):
    """Jobs, by id or name, that must end before this one: in success, in any way, or in failure."""

    ok: JobNames = Field(default_factory=list)
    any: JobNames = Field(default_factory=list)
    not_ok: JobNames = Field(default_factory=list)


@takes_fields_of(RunTerms)
class JobFile(RequestBody):
    """A job as people write it; everything but the command has a default.

    A job is stopped for others only if it says how it restarts: with `checkpoint`, with `batch`
    or a range of `gpus`; `preemptible` overrules that. Spot and opportunistic jobs can always be
    stopped.
    """

    id: JobWord | None = None
    name: Name | None = None
    command: Annotated[list[Text], Field(min_length=1, max_length=4096)] | None = None
    run: Annotated[Text, Field(min_length=1)] | None = None
    setup: Annotated[Text, Field(min_length=1)] | None = None
    processes: Literal[1, "per-gpu", "auto"] = "auto"
    metrics: MetricPatterns = Field(default_factory=list)
    notify: Notify = Field(default_factory=list)
    artifacts: FolderBelow | None = None
    retry_on: Annotated[list[ExitCode], Field(max_length=256)] = Field(default_factory=list)
    workdir: FilePath = "."
    env: dict[Variable, Text | int | float] = Field(default_factory=dict, max_length=1024)
    gpus: CountOrNone | Gpus = 1
    nodes: Count | None = None
    kinds: Annotated[list[Word], Field(max_length=32)] = Field(default_factory=list)
    batch: BatchLimits | None = None
    share: Sharing = "allowed"
    tenant: Word | None = None
    user: Name | None = None
    plans: Annotated[list[PlanText], Field(max_length=32)] = Field(default_factory=list)
    model: Annotated[str, Field(max_length=128), AfterValidator(printable)] = ""
    priority: PriorityWord = "normal"
    checkpoint: Checkpoint | None = None
    preemptible: bool | None = None
    cpus: Cpus | None = None
    mem_gb: MemGb | None = None
    deadline_s: Positive | None = None
    deadline_or: Literal["decline", "warn"] | None = None
    retries: Annotated[int, Field(ge=0, le=1000, strict=True)] = 3
    backoff_s: Annotated[float, Field(ge=0.0, le=3600.0, allow_inf_nan=False)] = 2.0
    hints: dict[Word, Number] = Field(default_factory=dict, max_length=64)
    traffic: TrafficFields | None = None
    idle_timeout_s: Whole | None = None
    environment: SoftwareFields | None = None
    secrets: Annotated[list[Variable], Field(max_length=1024)] = Field(default_factory=list)
    after: After = After()
    app: Word | None = None
    sweep: Sweep | None = None
    max_parallel: Count | None = None

    @model_validator(mode="after")
    def _whole(self) -> JobFile:
        if isinstance(self.share, float) and self.share < 1.0 and self.gpus != 1:
            raise ValueError("a share below 1 is of one GPU; gpus must be 1")
        if self.gpus == 0 and (self.batch or self.share != "allowed"):
            raise ValueError("a job without GPUs has no batch and no share")
        if self.command is not None and not self.command[0]:
            raise ValueError("command: its first word is empty")
        if self.command is not None and self.run is not None:
            raise ValueError("command and run are two ways to say the same; give one")
        if self.sweep is not None and len((self.id or "").rpartition(":")[2]) > LONGEST_SWEEP_ID:
            raise ValueError(f"the id of a sweep has at most {LONGEST_SWEEP_ID} characters")
        if self.sweep is not None and self.app is not None:
            raise ValueError("a sweep is an app of its own; leave app out")
        if self.max_parallel is not None and self.sweep is None and self.app is None:
            raise ValueError("max_parallel counts the jobs of a sweep or an app; this has none")
        if starred := [name for name, value in self.env.items() if value == HIDDEN]:
            raise ValueError(f"env: {starred[0]!r} is starred out; write its value")
        if unknown := [name for name in self.secrets if name not in self.env]:
            raise ValueError(f"secrets: {unknown[0]!r} has no value in env")
        refuse_shell_syntax(self.command or ())
        return self

    @model_validator(mode="after")
    def _due(self) -> JobFile:
        if self.deadline_or is not None and self.deadline_s is None:
            raise ValueError("deadline_or says what to do about a deadline; give deadline_s")
        if self.deadline_or is not None and self.priority in TIERS:
            raise ValueError(
                f"priority {self.priority}: such a job gives way to all others, so no deadline can "
                "be promised; leave deadline_or out"
            )
        if self.priority in TIERS and self.preemptible is False:
            raise ValueError(
                f"priority {self.priority}: such a job is stopped for others; it is preemptible"
            )
        return self


def refuse_shell_syntax(command: Sequence[str]) -> None:
    """Refuse what a shell would act on: as words of a command they would do nothing."""
    if "-exec" in command or "-execdir" in command:  # find ends its commands with ;
        return
    for option, word in pairwise(("", *command)):
        script = option.startswith("-")  # as in `sh -c SCRIPT`, which reads it
        if word in SHELL_WORDS or (word.endswith(";") and len(word) > 1 and not script):
            raise ValueError(
                f"command: no shell reads it, so {word!r} would be an argument of "
                f"{command[0]!r}; write the line as a script: `run: |`"
            )


def _words(body: JobFile) -> tuple[str, ...]:
    """The words that are started: the command, or a shell with the script."""
    if body.run is not None:
        return (*SHELL, body.run)
    return tuple(body.command or ())


def name_of(body: JobFile) -> str:
    """The name that people call the job."""
    return body.name or (body.command[0].rpartition("/")[2] if body.command else "") or "job"


def job_of(
    body: JobFile,
    *,
    tenant: str,
    user: str,
    account: str = "",
    owner: str = "",
    parameters: Mapping[str, str] = NO_PARAMETERS,
    search: SearchTerms | None = None,
) -> Job:
    """The job that a file describes; without an id it gets a random one.

    `user` is for files that name none, `owner` whose mailbox hears of it. `parameters` are what a
    sweep gave it, `search` how that searches.
    """
    name = name_of(body)
    elastic = isinstance(body.gpus, Gpus)
    restarts = elastic or body.batch is not None or body.checkpoint is not None
    return Job(
        JobId(body.id or new_id(name)),
        demand=demand_of(body),
        tenant=tenant,
        user=body.user or user,
        model=body.model,
        batch=_batch(body.batch),
        priority=PRIORITIES[body.priority],
        deadline=body.deadline_s,
        deadline_or=Or(body.deadline_or or ""),
        tier=TIERS.get(body.priority, Tier.GUARANTEED),
        cpus=1.0 if body.gpus == 0 and body.cpus is None else body.cpus,
        mem_gb=body.mem_gb,
        hints=dict(body.hints),
        traffic=None if body.traffic is None else body.traffic.traffic(),
        **terms_of(body.share, body.priority),
        plans=tuple(map(read_execution, body.plans)),
        preemptible=restarts if body.preemptible is None else body.preemptible,
        launch=replace(
            _launch(body, name, account), owner=owner, parameters=parameters, search=search
        ),
        app=body.app or "",
        max_parallel=body.max_parallel or 0,
    )


def demand_of(body: JobFile) -> Demand:
    """The GPUs that are asked for: how many of which kinds, on how many nodes."""
    kinds = tuple(dict.fromkeys(body.kinds))
    share = part_of(body.share)
    nodes = body.nodes or 0
    if isinstance(body.gpus, Gpus):
        return Demand(body.gpus.min, body.gpus.min, body.gpus.max, kinds, share, nodes)
    return Demand(body.gpus, kinds=kinds, share=share, nodes=nodes)


def with_priority(job: Job, word: PriorityWord) -> Job:
    """A job moved to another class; InvalidConfig for one that cannot keep a promise in it."""
    if word in TIERS and job.deadline_or is not Or.UNSAID:
        raise InvalidConfig(
            f"job {job.id!r} was to have its deadline promised, and as {word} it gives way to all "
            "others",
            hint="submit it again without `or`",
        )
    return replace(job, priority=PRIORITIES[word], tier=TIERS.get(word, Tier.GUARANTEED))


def new_id(name: str, mark: str = "") -> str:
    """A short name for people, and a mark; default: enough random characters not to be guessed."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:24].strip("-")
    return f"{stem or 'job'}-{mark or secrets.token_hex(4)}"


def _batch(batch: BatchLimits | None) -> BatchRange | None:
    return (
        None if batch is None else BatchRange(batch.init, batch.max, batch.max_per_gpu or batch.max)
    )


def _launch(body: JobFile, name: str, account: str) -> Launch:
    kept = body.checkpoint or Checkpoint()
    return Launch(
        _words(body),
        workdir=body.workdir,
        env={key: _text(value) for key, value in body.env.items()},
        name=name,
        checkpoint=kept.dir,
        retries=body.retries,
        backoff_s=body.backoff_s,
        account=account,
        retry_on=tuple(body.retry_on),
        software=software_of(body.environment),
        secrets=tuple(body.secrets),
        notify=tuple(dict.fromkeys(body.notify)),
        artifacts=body.artifacts or "",
        **{
            **_terms(body),
            "processes": Processes(str(body.processes)),
            "metrics": tuple(body.metrics),
            "grace_s": kept.grace_s,
        },
    )


def _terms(body: JobFile) -> dict[str, Any]:
    """The terms of its processes: a warning within the time limit, an end of sessions."""
    terms = {name: value for name, value in body if name in TERMS and value is not None}
    terms["warn_s"] = min(terms["warn_s"], terms.get("time_limit_s", 0.0))
    if terms["pty"]:
        terms["idle_s"] = DEFAULT_IDLE_S if body.idle_timeout_s is None else body.idle_timeout_s
    return terms


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value}"


def search_of(body: JobFile) -> SearchTerms | None:
    """The terms by which the sweep of a file searches; None for one that does not."""
    sweep = body.sweep
    if sweep is None or not sweep.space:
        return None
    return sweep.terms(body.model_dump_json(exclude_unset=True) if sweep.search == "optuna" else "")


NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SWEEP, INDEX = "sweep", "index"  # parameters that every job of a sweep has


def expand(body: JobFile, sweep: str) -> Iterator[tuple[JobFile, dict[str, str]]]:
    """The file and the parameters of each job; `sweep` is the id of the whole."""
    if body.sweep is None:
        yield body, {}
        return
    for index, values in enumerate(combinations(body.sweep, body.max_parallel)):
        yield fill(body, sweep, index, values), values


def substitute(text: str, known: Mapping[str, str]) -> str:
    """The text with the values of parameters in place of their names."""
    return NAMED.sub(lambda match: known.get(match[1], match[0]), text)


def fill(body: JobFile, sweep: str, index: int, values: Mapping[str, str]) -> JobFile:
    """The file of one job of a sweep."""
    known = {SWEEP: sweep, INDEX: str(index), **values}
    variables = {f"WEFT_SWEEP_{name.upper()}": value for name, value in known.items()}
    env = {
        name: substitute(value, known) if isinstance(value, str) else value
        for name, value in body.env.items()
    }
    names = {
        "id": f"{sweep}.{index}",
        "name": f"{name_of(body)[: LONGEST_NAME - len(f'.{index}')]}.{index}",
        "app": known[SWEEP],
    }
    changes: dict[str, Any] = {
        "id": None,
        "sweep": None,
        "max_parallel": None,
        "env": {**variables, **env},
        "workdir": substitute(body.workdir, known),
    }
    if body.command is not None:
        changes["command"] = [substitute(word, known) for word in body.command]
    if body.run is not None:
        changes["run"] = substitute(body.run, known)
    if body.setup is not None:
        changes["setup"] = substitute(body.setup, known)
    if body.artifacts is not None:
        changes["artifacts"] = substitute(body.artifacts, known)
    if body.checkpoint is not None:
        folder = substitute(body.checkpoint.dir, known)
        changes["checkpoint"] = body.checkpoint.model_copy(update={"dir": folder})
    filled = JobFile.model_validate({**dict(body), **changes})
    # Names that we made are longer than those that people choose, and are not checked like them.
    return filled.model_copy(update={**names, "max_parallel": body.max_parallel})
