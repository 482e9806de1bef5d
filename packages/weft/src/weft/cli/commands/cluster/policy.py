"""`weft policy`: what decides, and another one from now on."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.connect.client import ServiceClient
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.service.responses.answers import PolicyAnswer


def policy(
    name: Annotated[
        str,
        typer.Argument(
            help="Use this policy from now on: NAME or NAME:KEY=VALUE,..., or a .yaml file."
        ),
    ] = "",
    as_json: o.AsJson = False,
) -> None:
    """Show which policy decides, or change it while jobs run."""
    from weft.app.policy_file import read_policy_to_send
    from weft.core.codec.plain_values import encode

    with user_errors():
        client = ServiceClient()
        if name:
            asked = {"policy": encode(read_policy_to_send(name))}
            answer = client.put(PolicyAnswer, "/policy", asked)
        else:
            answer = client.get(PolicyAnswer, "/policy")
    if as_json:
        print_json(answer)
    else:
        console().print(f"{answer.policy}{' decides from now on' if name else ''}")
        if answer.trouble:
            console().print(f"trouble: {answer.trouble}", style="bold red", markup=False)
