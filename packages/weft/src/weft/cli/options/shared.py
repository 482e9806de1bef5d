"""Options that several commands share, worded once, and options that are fields of a dataclass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from weft.core.errors import InvalidConfig
from weft.core.spec.parameters import settings
from weft.traces.options import Options


def panel(title: str) -> Callable[..., Any]:
    """Return a maker of options that `--help` shows under a title."""
    return partial(typer.Option, rich_help_panel=title)


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
FILE, OUT = panel("Workload files"), panel("Output")

Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        "-c",
        help="NODESxGPUS:KIND joined by +, a name (`weft list cluster`), or a .yaml file. "
        "Default: one that suits the workload.",
    ),
]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", min=0)]
TraceOption = Annotated[
    list[str] | None,
    FILE(
        "--trace-option",
        "-o",
        help="Any other loader option as KEY=VALUE, e.g. scale_arrivals=2, attempts=span.",
    ),
]
AsJson = Annotated[bool, OUT("--json", help="Print one JSON object.")]
Columns = Literal["main", "waits", "fairness"]

# What of ended jobs is kept: the same flags of the service and of `weft state prune`.

KeepDays = Annotated[
    float, typer.Option(help="Days to keep an ended job and its output; 0: forever.", min=0.0)
]
KeepJobs = Annotated[int, typer.Option(help="The most ended jobs to keep; 0: all.", min=0)]
KeepGigabytes = Annotated[
    float, typer.Option(help="The most GB of ended jobs' output to keep; 0: all.", min=0.0)
]
KeepEvents = Annotated[
    int, typer.Option(help="About how many events of the log to keep; 0: all.", min=0)
]


def trace_options(
    max_gpus: int | None, sample: int | None, window: str, more: Sequence[str] | None
) -> Options:
    """The loader's options from what was typed."""
    for pair in more or ():
        if "=" not in pair:
            raise InvalidConfig(f"--trace-option {pair!r} is not KEY=VALUE")
    typed = dict(pair.split("=", 1) for pair in more or ())
    values = settings("--trace-option", Options, typed)
    if window:
        values["window"] = _window(window)
    if max_gpus is not None:
        values["max_gpus"] = max_gpus
    if sample is not None:
        values["sample"] = sample
    return Options(**values)


def _window(text: str) -> tuple[float, float]:
    start, colon, end = text.partition(":")
    try:
        return float(start or 0.0), float(end or ("inf" if colon else "no colon"))
    except ValueError as error:
        raise InvalidConfig(
            f"--window {text!r} is not START:END", hint="seconds, for example 0:86400"
        ) from error


def seconds(text: str, option: str) -> float:
    """Seconds of a span such as 90s, 15m, 12h, 30d or 2w; InvalidConfig names the option."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", text)
    if match is None:
        raise InvalidConfig(
            f"{option} is {text!r}, not a span of time", hint="write it as 90s, 15m, 12h or 30d"
        )
    return float(match[1]) * UNITS[match[2]]


def read_changes(
    policy: str | None,
    limits: list[str] | None,
    weights: list[str] | None,
    nodes: str,
    jobs: list[str] | None = None,
) -> dict[str, Any]:
    """As the service takes it; what is not different is left out."""
    from weft.app.policy_file import read_policy_to_send
    from weft.core.codec.plain_values import encode

    sizes = [{"id": job, "gpus": _whole(job, count)} for job, count in _pairs("--job", jobs)]
    changes: dict[str, Any] = {
        "policy": None if policy is None else encode(read_policy_to_send(policy)),
        "limits": {who: _number(who, gpus) for who, gpus in _pairs("--limit", limits)},
        "weights": {who: _number(who, weight) for who, weight in _pairs("--weight", weights)},
        "nodes": nodes,
        "jobs": sizes,
    }
    return {name: change for name, change in changes.items() if change}


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    pairs = []
    for text in texts or ():
        name, equals, number = text.rpartition("=")
        if not equals or not name:
            raise InvalidConfig(f"{option} {text!r} is not NAME=NUMBER")
        pairs.append((name, number))
    return pairs


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidConfig(f"{name}={text} is not NAME=NUMBER") from None


def _whole(job: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise InvalidConfig(f"--job {job}={text} is not JOB=GPUS", hint="such as train-1=2")
    return int(text)


def options_from_fields(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for each field of its parameters that are dataclasses.

    A field is `Annotated` with Typer's `Option` or `Argument`. One that is a `Sequence` is an
    option that can be repeated.
    """
    own = signature(command, eval_str=True).parameters
    groups = {name: part.annotation for name, part in own.items() if is_dataclass(part.annotation)}
    parts = [
        option
        for name, part in own.items()
        for option in (_options(groups[name]) if name in groups else [part])
    ]

    @wraps(command)
    def expanded(**typed: Any) -> None:
        built = {name: _build(group, typed) for name, group in groups.items()}
        command(**built, **typed)

    parts = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in parts]
    expanded.__signature__ = Signature(parts)  # type: ignore[attr-defined]
    expanded.__annotations__ = {part.name: part.annotation for part in parts}
    return expanded


def _options(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        annotation, default = hints[each.name], each.default
        if _is_sequence(annotation):
            kind, option = get_args(annotation)
            annotation, default = Annotated[list[get_args(kind)[0]] | None, option], None  # type: ignore[misc]
        default = Parameter.empty if default is MISSING else default
        yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _build(group: Any, typed: dict[str, Any]) -> Any:
    hints = get_type_hints(group, include_extras=True)
    values = {each.name: typed.pop(each.name) for each in fields(group)}
    repeated = {name for name in values if _is_sequence(hints[name])}
    return group(
        **{
            name: tuple(value or ()) if name in repeated else value
            for name, value in values.items()
        }
    )


def _is_sequence(annotation: Any) -> bool:
    return get_origin(get_args(annotation)[0]) is Sequence
