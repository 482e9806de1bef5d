"""`weft what-if`: the service's own past under another policy."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli import options as o
from weft.cli.view.errors import user_errors


def what_if(
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="A policy (`weft list policy`), with parameters.")
    ],
    hours: Annotated[
        float | None, typer.Option(help="The last so many hours only.", min=0.001)
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Replay the service's own past under another policy."""
    from weft.app.policy_file import read_policy
    from weft.cli.client import Client
    from weft.cli.view.comparison import comparison_table
    from weft.cli.view.screen import console, print_json
    from weft.core.codec import encode
    from weft.service.responses import Comparison

    with user_errors():
        told = {"policy": encode(read_policy(policy)), "hours": hours}
        body = {name: one for name, one in told.items() if one}
        answer = Client().post(Comparison, "/what-if", body)
    if as_json:
        print_json(answer)
        return
    screen = console()
    screen.print(comparison_table(answer))
