"""Options that several commands share, worded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from weft.traces.options import Options


def panel(title: str) -> Callable[..., Any]:
    """What makes options that `--help` shows under a title."""
    return partial(typer.Option, rich_help_panel=title)


FILE, OUT = panel("Workload files"), panel("Output")

Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        "-c",
        help="NODESxGPUS:KIND joined by +, a name (`weft list cluster`), or a .yaml file. "
        "By default what suits the workload.",
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


def trace_options(
    max_gpus: int | None, sample: int | None, window: str, more: Sequence[str] | None
) -> Options:
    """The loader's options from what was typed."""
    from weft.core.errors import InvalidConfig
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
    from weft.core.errors import InvalidConfig

    start, colon, end = text.partition(":")
    try:
        return float(start or 0.0), float(end or ("inf" if colon else "no colon"))
    except ValueError as error:
        raise InvalidConfig(
            f"--window {text!r} is not START:END", hint="seconds, for example 0:86400"
        ) from error
