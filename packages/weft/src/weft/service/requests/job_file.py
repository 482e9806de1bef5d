"""A job file as the API takes it, and the job it describes.

Everything a tenant sends is checked here, once: what comes out is safe to name files by, to show
and to store. Commands and variables are anyone's own business: they never meet a shell.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from weft.core.errors import InvalidConfig
from weft.core.model.execution import read_execution
from weft.core.model.job import BatchRange, Demand, Job, JobId, Or, Tier
from weft.core.model.launch import DEFAULT_GRACE_S, Launch, Processes
from weft.core.model.priorities import PRIORITIES, PriorityWord
from weft.service.requests.field_groups import (
    Sharing,
    SoftwareFields,
    TrafficFields,
    part_of,
    software_of,
    terms_of,
)
from weft.service.requests.field_types import (
    CheckpointPlace,
    Count,
    CountOrNone,
    Cpus,
    ExitCode,
    FilePath,
    JobWord,
    MemGb,
    Name,
    Number,
    PlanText,
    Positive,
    Text,
    Variable,
    Whole,
    Word,
    printable,
)
from weft.service.requests.request_base import RequestBody

GUARANTEED: Literal["guaranteed"] = "guaranteed"
TIERS: dict[PriorityWord, Tier] = dict.fromkeys(("spot", "opportunistic"), Tier.OPPORTUNISTIC)
MOST_OF_A_SWEEP = 1000
MOST_PARAMETERS = 64
LONGEST_SWEEP_ID = 60  # its jobs' ids have a number more
DEFAULT_IDLE_S = 3600.0
DEFAULT_TENANT = "default"
HIDDEN = "********"  # in place of a variable's value
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


class Batch(RequestBody):
    """Global batch sizes that the job may train with; `max_per_gpu` is what fits on one GPU."""

    init: Count
    max: Count
    max_per_gpu: Count | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Batch:
        if self.init > self.max:
            raise ValueError(f"init {self.init} is above max {self.max}")
        return self


class Checkpoint(RequestBody):
    """Where the job keeps its checkpoints, and how long a stop may take."""

    dir: CheckpointPlace = ""
    grace_s: Annotated[float, Field(ge=0.0, le=86_400.0, allow_inf_nan=False)] = DEFAULT_GRACE_S


JobNames = Annotated[list[Name], Field(max_length=1000)]


class After(RequestBody):
    """Jobs, by id or name, that must end before this one: in success, in any way, or in failure."""

    ok: JobNames = Field(default_factory=list)
    any: JobNames = Field(default_factory=list)
    not_ok: JobNames = Field(default_factory=list)


Parameter = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Value = bool | int | float | Text
Values = Annotated[list[Value], Field(min_length=1, max_length=MOST_OF_A_SWEEP, fail_fast=True)]
Grid = Annotated[dict[Parameter, Values], Field(max_length=MOST_PARAMETERS)]
Entry = Annotated[dict[Parameter, Value], Field(max_length=MOST_PARAMETERS)]
Entries = Annotated[list[Entry], Field(min_length=1, max_length=MOST_OF_A_SWEEP, fail_fast=True)]


class Sweep(RequestBody):
    """One job for each combination of the values in `grid`, or for each entry of `list`."""

    grid: Grid | None = None
    list: Entries | None = None

    @model_validator(mode="after")
    def _counted(self) -> Sweep:
        if bool(self.grid) == bool(self.list):
            raise ValueError("a sweep has a grid or a list of parameters, one of them")
        count = prod(map(len, (self.grid or {}).values())) * len(self.list or (0,))
        if count > MOST_OF_A_SWEEP:
            raise ValueError(f"{count} jobs are too many; a sweep has at most {MOST_OF_A_SWEEP}")
        return self


class JobFile(RequestBody):
    """A job as people write it; everything but the command has a default.

    A job is stopped for others only if it says how it restarts: with `checkpoint`, with `batch`
    or a range of `gpus`; `preemptible` overrules that. A spot job can always be stopped.
    """

    id: JobWord | None = None
    name: Name | None = None
    command: Annotated[list[Text], Field(min_length=1, max_length=4096)] | None = None
    run: Annotated[Text, Field(min_length=1)] | None = None
    setup: Annotated[Text, Field(min_length=1)] | None = None
    processes: Literal[1, "per-gpu", "auto"] = "auto"
    time_limit_s: Positive | None = None
    warn_s: Whole = 0.0
    retry_on: Annotated[list[ExitCode], Field(max_length=256)] = Field(default_factory=list)
    workdir: FilePath = "."
    env: dict[Variable, Text | int | float] = Field(default_factory=dict, max_length=1024)
    gpus: CountOrNone | Gpus = 1
    nodes: Count | None = None
    kinds: Annotated[list[Word], Field(max_length=32)] = Field(default_factory=list)
    batch: Batch | None = None
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
    pty: bool = False
    watch: bool = True
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
        check_words(self.command or ())
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
        if self.priority == "spot" and self.preemptible is False:
            raise ValueError("priority spot: such a job is stopped for others; it is preemptible")
        return self


def check_words(command: Sequence[str]) -> None:
    """Refuse what a shell would act on: as words of a command they would do nothing."""
    if "-exec" in command or "-execdir" in command:  # find ends its commands with ;
        return
    for word in command:
        if word in SHELL_WORDS or (word.endswith(";") and len(word) > 1):
            raise ValueError(
                f"command: no shell reads it, so {word!r} would be an argument of "
                f"{command[0]!r}; write the line as a script: `run: |`"
            )


def _words(body: JobFile) -> tuple[str, ...]:
    """What is started: the command, or a shell with the script."""
    if body.run is not None:
        return (*SHELL, body.run)
    return tuple(body.command or ())


def name_of(body: JobFile) -> str:
    """What people call the job."""
    return body.name or (body.command[0].rpartition("/")[2] if body.command else "") or "job"


def job_of(
    body: JobFile,
    *,
    tenant: str,
    user: str,
    account: str = "",
    parameters: Mapping[str, str] = NO_PARAMETERS,
) -> Job:
    """The job that a file describes; without an id it gets a random one.

    `parameters` are what a sweep gave it.
    """
    name = name_of(body)
    elastic = isinstance(body.gpus, Gpus)
    restarts = elastic or body.batch is not None or body.checkpoint is not None
    restarts |= body.priority == "spot"
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
        launch=replace(_launch(body, name, account), parameters=parameters),
        app=body.app or "",
        max_parallel=body.max_parallel or 0,
    )


def demand_of(body: JobFile) -> Demand:
    """How many GPUs of which kinds, on how many nodes."""
    kinds = tuple(dict.fromkeys(body.kinds))
    share = part_of(body.share)
    nodes = body.nodes or 0
    if isinstance(body.gpus, Gpus):
        return Demand(body.gpus.min, body.gpus.min, body.gpus.max, kinds, share, nodes)
    return Demand(body.gpus, kinds=kinds, share=share, nodes=nodes)


def with_priority(job: Job, word: PriorityWord) -> Job:
    """The same job of another class; InvalidConfig for one that cannot keep a promise in it."""
    if word in TIERS and job.deadline_or is not Or.UNSAID:
        raise InvalidConfig(
            f"job {job.id!r} was to have its deadline promised, and as {word} it gives way to all "
            "others",
            hint="submit it again without `or`",
        )
    return replace(job, priority=PRIORITIES[word], tier=TIERS.get(word, Tier.GUARANTEED))


def new_id(name: str) -> str:
    """A short name for people and enough random characters not to be guessed."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:24].strip("-")
    return f"{stem or 'job'}-{secrets.token_hex(4)}"


def _batch(batch: Batch | None) -> BatchRange | None:
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
        grace_s=kept.grace_s,
        retries=body.retries,
        backoff_s=body.backoff_s,
        account=account,
        processes=Processes(str(body.processes)),
        setup=body.setup or "",
        time_limit_s=body.time_limit_s or 0.0,
        warn_s=min(body.warn_s, body.time_limit_s or 0.0),
        retry_on=tuple(body.retry_on),
        software=software_of(body.environment),
        secrets=tuple(body.secrets),
        pty=body.pty,
        idle_s=_idle_s(body),
        watch=body.watch,
    )


def _idle_s(body: JobFile) -> float:
    """After how long an unused session ends; 0: never, and for jobs that are none."""
    if not body.pty:
        return 0.0
    return DEFAULT_IDLE_S if body.idle_timeout_s is None else body.idle_timeout_s


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value}"
