"""`weft list`: what there is, one line each."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from weft.cli import options as o
from weft.cli.view.errors import user_errors


class PartName(StrEnum):
    """What can be listed."""

    policy = "policy"
    trace = "trace"
    predictor = "predictor"
    cluster = "cluster"
    model = "model"
    engine = "engine"
    perf = "perf"


def list_parts(
    kind: Annotated[PartName, typer.Argument(help="What to list.")], as_json: o.AsJson = False
) -> None:
    """List policies, workloads, engines and other parts."""
    from weft.app.catalogue import catalogue

    with user_errors():
        headings, rows = catalogue(kind.value)
    if as_json:
        typer.echo(json.dumps([dict(zip(headings, row, strict=True)) for row in rows], indent=1))
        return
    if not rows:
        typer.echo(f"no {kind.value} is installed")
        return
    from rich.console import Console

    from weft.cli.view.parts import parts_table

    screen = Console(highlight=False, markup=False)
    screen.print(parts_table(headings, rows, screen.width))
