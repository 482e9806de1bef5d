"""`weft cancel`: withdraw jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli import options as o
from weft.cli.view.errors import user_errors


def cancel(
    jobs: Annotated[list[str], typer.Argument(help="Ids (`weft jobs`).", metavar="ID...")],
    as_json: o.AsJson = False,
) -> None:
    """Cancel jobs; those that run get their time to leave."""
    from weft.cli.client import Client, Refused, at
    from weft.cli.view.screen import console, print_json

    done: list[str] = []
    with user_errors():
        client = Client()
        try:
            for job in jobs:
                client.delete(at("jobs", job))
                done.append(job)
        except Refused as error:
            if done:
                error.what += f" ({', '.join(done)} cancelled before)"
            raise
    if as_json:
        print_json({"cancelled": done})
    else:
        console().print(f"cancelled {', '.join(done)}")
