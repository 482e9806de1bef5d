"""`weft top`: which job holds what, live."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weft.cli.connect.client import ServiceClient, complete_sweeps
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, interactive, print_json, read_snapshot, repeat
from weft.cli.view.status import board


def top(
    every_s: Annotated[
        float, typer.Option("--every", help="Seconds between updates.", min=0.1)
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once instead of updating.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Watch which job holds what, batch sizes, goodput and the queue.

    A sweep is one line; `weft jobs SWEEP` shows each of its jobs.
    """
    with user_errors():
        client = ServiceClient()
        if as_json:
            print_json(read_snapshot(client))
            return

        def render(width: int) -> Any:
            seen = read_snapshot(client)
            jobs = complete_sweeps(client, seen.jobs)
            return board(seen.cluster, seen.nodes, jobs, seen.cluster.now, width)

        screen = console()
        if once or not interactive():
            screen.print(render(screen.width))
        else:
            repeat(render, every_s=every_s, full=True)
