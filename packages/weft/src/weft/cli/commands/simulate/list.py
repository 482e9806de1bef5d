"""`weft list`: what there is, one line each."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors


class PartName(StrEnum):
    """Kinds of parts that can be listed."""

    policy = "policy"
    trace = "trace"
    predictor = "predictor"
    cluster = "cluster"
    node_type = "node-type"
    model = "model"
    engine = "engine"
    perf = "perf"
    wrapper = "wrapper"
    part = "part"
    order = "order"
    size = "size"
    place = "place"
    share = "share"
    admit = "admit"


def list_parts(
    kind: Annotated[PartName, typer.Argument(help="What to list.")],
    where: Annotated[
        str,
        typer.Option(
            help="Only policies, wrappers or parts with these tags, joined by commas, such "
            "as sharing,unknown-durations."
        ),
    ] = "",
    as_json: o.AsJson = False,
) -> None:
    """List policies, workloads, engines and other parts."""
    from weft.app.catalogue import catalogue

    with user_errors():
        words = tuple(word.strip() for word in where.split(",") if word.strip())
        headings, rows = catalogue(kind.value, words)
    if as_json:
        typer.echo(json.dumps([dict(zip(headings, row, strict=True)) for row in rows], indent=1))
        return
    if not rows:
        missing = f"stands where {' and '.join(words)} do" if words else "is installed"
        typer.echo(f"no {kind.value} {missing}")
        return
    from weft.cli.view.results import parts_table

    screen = Console(highlight=False, markup=False)
    screen.print(parts_table(headings, rows, screen.width))
