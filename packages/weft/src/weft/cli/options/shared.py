"""Options that several commands share, worded once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from weft.core.errors import InvalidConfig

if TYPE_CHECKING:
    from weft.traces.options import Options


def panel(title: str) -> Callable[..., Any]:
    """What makes options that `--help` shows under a title."""
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
Columns = Literal["main", "fairness"]

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
    from weft.core.spec.parameters import settings
    from weft.traces.options import Options

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
