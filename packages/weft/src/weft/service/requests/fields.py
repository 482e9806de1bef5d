"""Fields that requests are made of, each within bounds, and groups of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field as Declared
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Pattern, Traffic, TrafficPhase
from weft.core.model.execution import read_execution
from weft.core.model.job import (
    LEAST_MEM_GB,
    LEAST_SHARE,
    MOST_CPUS,
    MOST_GPUS,
    MOST_MEM_GB,
    MOST_SLOWDOWN,
    Job,
)
from weft.core.model.launch import Software, SoftwareKind

WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
JOB_WORD = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63}:)?[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MOST_TEXT = 131_072
LONGEST_NAME = 128
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
METRIC_TEXT = r"[^A-Za-z0-9_./@*?-]"


def printable(text: str) -> str:
    """A text of one line, without control characters."""
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed, such as a newline")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a NUL character")
    return text


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not the name of a variable: it is empty or has '=' or NUL")
    return name


def clean_path(text: str) -> str:
    """A path that is printable and does not climb."""
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed, such as a newline or NUL")
    if ".." in PurePosixPath(text).parts:
        raise ValueError("has '..' in it; give the path without")
    return text


def _folder_below(text: str) -> str:
    """A folder below another, without a slash at its end."""
    parts = PurePosixPath(clean_path(text)).parts
    if not parts or parts[0] == "/":
        raise ValueError("names no folder below the working directory; give one such as out")
    return "/".join(parts)


def _checkpoint_place(text: str) -> str:
    """A path, or an address in an object store without credentials."""
    scheme, separator, rest = clean_path(text).partition("://")
    if not separator:
        return text
    if scheme == "file" and rest.startswith("/"):
        return rest
    bucket = rest.partition("/")[0]
    if "@" in bucket:
        raise ValueError("has credentials in it; give them as variables of the job")
    of_a_store = SCHEME.fullmatch(scheme) and scheme not in ("file", "memory")
    if not of_a_store or not bucket or set("?#") & set(rest):
        raise ValueError("is neither a path nor an address like s3://bucket/folder")
    return text.rstrip("/")


def _metric_pattern(text: str) -> str:
    """A metric's name, in which `*` stands for any characters and `?` for one."""
    if wrong := re.search(METRIC_TEXT, text):
        raise ValueError(
            f"{wrong[0]!r} is in no metric's name; this is no regular expression: give names, in "
            "which * stands for any characters and ? for one, such as val_*"
        )
    return text


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _plan(text: str) -> str:
    try:
        return read_execution(text).text
    except InvalidConfig as error:
        raise ValueError(str(error)) from error


Word = Annotated[str, Field(pattern=WORD)]
MetricPattern = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_metric_pattern)]
MetricPatterns = Annotated[list[MetricPattern], Field(max_length=32), BeforeValidator(_listed)]
Notify = Annotated[
    list[Literal["mail", "slack", "webhook"]], Field(max_length=3), BeforeValidator(_listed)
]
PlanText = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_plan)]
JobWord = Annotated[str, Field(pattern=JOB_WORD)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(printable)]
Text = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(_no_nul)]
Variable = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_variable)]
CheckpointPlace = Annotated[str, Field(max_length=4096), AfterValidator(_checkpoint_place)]
FilePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(clean_path)]
FolderBelow = Annotated[str, Field(max_length=1024), AfterValidator(_folder_below)]
Count = Annotated[int, Field(ge=1, le=MOST_GPUS, strict=True)]
CountOrNone = Annotated[int, Field(ge=0, le=MOST_GPUS, strict=True)]
Positive = Annotated[float, Field(gt=0.0, le=1e12, allow_inf_nan=False, strict=True)]
ExitCode = Annotated[int, Field(ge=-64, le=255, strict=True)]
Whole = Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False, strict=True)]
Cpus = Annotated[float, Field(gt=0.0, le=MOST_CPUS, allow_inf_nan=False, strict=True)]
MemGb = Annotated[float, Field(gt=0.0, le=MOST_MEM_GB, allow_inf_nan=False, strict=True)]
Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False, strict=True)]


Body = TypeVar("Body", bound="RequestBody")


class RequestBody(BaseModel):
    """Fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def takes_fields_of(part: type) -> Callable[[type[Body]], type[Body]]:
    """Add the fields that a dataclass declares as `said` in requests."""
    hints = get_type_hints(part)
    more: dict[str, Any] = {
        each.name: _field(each, hints[each.name]) for each in fields(part) if each.metadata
    }

    def add(body: type[Body]) -> type[Body]:
        name, doc, module = body.__name__, body.__doc__, body.__module__
        return create_model(name, __base__=body, __doc__=doc, __module__=module, **more)

    return add


def _field(declared: Declared[Any], kind: Any) -> tuple[Any, Any]:
    limits, default = declared.metadata["limits"], declared.default
    if kind is not bool:
        finite = False if kind is float else None
        kind = Annotated[kind, Field(strict=True, allow_inf_nan=finite, **limits)]
    if "gt" in limits and default <= limits["gt"]:  # nobody can write it, but leave it out
        kind, default = kind | None, None
    return kind, Field(default, description=declared.metadata["meaning"])


GUARANTEED_SLOWDOWN = 1.1  # of jobs whose priority is guaranteed, unless they say otherwise
Share = Annotated[float, Field(ge=LEAST_SHARE, le=1.0, allow_inf_nan=False)]


class ShareFields(RequestBody):
    """The terms on which a job shares a GPU.

    `slowdown` is how many times longer than alone its steps may take, `memory_gb` the memory that
    it needs on each GPU.
    """

    slowdown: Annotated[float, Field(ge=1.0, le=MOST_SLOWDOWN, allow_inf_nan=False)] | None = None
    memory_gb: (
        Annotated[float, Field(ge=LEAST_MEM_GB, le=MOST_MEM_GB, allow_inf_nan=False)] | None
    ) = None


def _read_bool(value: Any) -> Any:
    """`share: false` refuses company, `share: true` allows it."""
    return ("allowed" if value else "never") if isinstance(value, bool) else value


Sharing = Annotated[Literal["allowed", "never"] | Share | ShareFields, BeforeValidator(_read_bool)]


def part_of(share: str | float | ShareFields) -> float:
    """The part of a GPU that is asked for."""
    return share if isinstance(share, float) else 1.0


def terms_of(share: str | float | ShareFields, priority: str) -> dict[str, Any]:
    """Fields of a job: whether it may have company, at which slowdown, with which memory."""
    asked = share if isinstance(share, ShareFields) else ShareFields()
    slowdown = asked.slowdown
    if slowdown is None and priority == "guaranteed":
        slowdown = GUARANTEED_SLOWDOWN
    return {"shareable": share != "never", "slowdown": slowdown, "gpu_mem_gb": asked.memory_gb}


def share_field(job: Job, priority: str) -> dict[str, Any]:
    """The field of a job file that says the same; empty where it is the default."""
    if job.demand.share < 1.0:
        return {"share": job.demand.share}
    if not job.shareable:
        return {"share": "never"}
    implied = GUARANTEED_SLOWDOWN if priority == "guaranteed" else None
    asked = {
        "slowdown": None if job.slowdown == implied else job.slowdown,
        "memory_gb": job.gpu_mem_gb,
    }
    share = {name: value for name, value in asked.items() if value is not None}
    return {"share": share} if share else {}


# The environment that a job asks for: a folder of packages, or an image with volumes.

IMAGE = re.compile(r"([a-z]+://)?[A-Za-z0-9/.][A-Za-z0-9._/:@+-]*")
INSIDE = r"/[^:,\"'\\]*"
NAMED = r"(secret/)?[a-z0-9][a-z0-9.-]{0,252}"  # a claim or a secret of Kubernetes
VOLUME = re.compile(rf"({INSIDE}(:{INSIDE})?|{NAMED}:{INSIDE})(:r[ow])?")


def _image(text: str) -> str:
    if not IMAGE.fullmatch(clean_path(text)):
        raise ValueError("is not the name of an image, such as registry.example/torch:2.9")
    return text


def _volume(text: str) -> str:
    if not VOLUME.fullmatch(text) or any(".." in clean_path(p) for p in text.split(":")):
        raise ValueError("is not a volume: /path, /path:/inside:ro, or CLAIM:/inside")
    return text


Image = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME * 2), AfterValidator(_image)]
Volume = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_volume)]


class SoftwareFields(RequestBody):
    """The environment a job runs in: one of these. An image also names the folders of its node."""

    venv: FilePath | None = None
    conda: FilePath | None = None
    uv: FilePath | None = None
    image: Image | None = None
    volumes: Annotated[list[Volume], Field(max_length=64)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one(self) -> SoftwareFields:
        if len(self.model_fields_set - {"volumes"}) != 1:
            raise ValueError("an environment is one of venv, conda, uv and image")
        if self.volumes and self.image is None:
            raise ValueError("volumes are for images; other environments see the node's files")
        return self


def software_of(fields: SoftwareFields | None) -> Software | None:
    """Return the software of a job that these fields ask for."""
    if fields is None:
        return None
    ((kind, name),) = fields.model_dump(exclude_none=True, exclude={"volumes"}).items()
    return Software(SoftwareKind(kind), name, tuple(fields.volumes))


# What a job file may say about the messages between a job's workers.

Amount = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
MOST_PHASES = 256


class PhaseFields(RequestBody):
    """A phase of an iteration in which the job sends data."""

    start_s: Amount
    seconds: Amount
    gbps: Amount


class TrafficFields(RequestBody):
    """One iteration: how long it takes, what it sends, and when.

    `share` is the fraction of it in which workers wait for each other, `gbit` what the job sends
    over every link it uses. Only policies that consider links read it.
    """

    iteration_s: Amount
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    gbit: Amount = 0.0
    pattern: Pattern = Pattern.RING
    phases: list[PhaseFields] = Field(default_factory=list, max_length=MOST_PHASES)
    sensitive: bool = True

    @model_validator(mode="after")
    def _possible(self) -> TrafficFields:
        try:
            self.traffic()
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
        return self

    def traffic(self) -> Traffic:
        """Return the traffic in the core's form."""
        phases = tuple(
            TrafficPhase(fields.start_s, fields.seconds, fields.gbps) for fields in self.phases
        )
        return Traffic(
            self.iteration_s, self.share, self.gbit, self.pattern, phases, self.sensitive
        )
