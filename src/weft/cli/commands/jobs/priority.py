"""`weft priority`: another priority for jobs that have not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

import typer

from weft.cli.many_jobs import Yes, do_to_all
from weft.cli.options import shared as o

if TYPE_CHECKING:
    from weft.cli.connect.client import Client


def priority(
    job: Annotated[
        str,
        typer.Argument(help="An id, a name, @last, a sweep or a pattern.", metavar="ID"),
    ],
    to: Annotated[
        str, typer.Argument(help="guaranteed, normal, spot or opportunistic.", metavar="CLASS")
    ],
    yes: Yes = False,
    as_json: o.AsJson = False,
) -> None:
    """Change the priority of jobs that have not ended.

    A running job keeps its GPUs until the policy decides otherwise. `guaranteed` needs a grant,
    as when a job is submitted (`weft quota set --guaranteed`).
    """
    from weft.cli.connect.client import at
    from weft.cli.view.errors import user_errors
    from weft.core.errors import InvalidConfig, did_you_mean
    from weft.core.model.priorities import PriorityWord
    from weft.service.responses.answers import Done

    with user_errors():
        if to not in get_args(PriorityWord):
            raise InvalidConfig(
                f"no priority named {to!r}{did_you_mean(to, get_args(PriorityWord))}",
                hint="CLASS is guaranteed, normal, spot or opportunistic",
            )

    def do(client: Client, name: str) -> None:
        client.put(Done, at("jobs", name, "priority"), {"priority": to})

    do_to_all([job], f"give priority {to} to", f"{to} now:", do, yes=yes, as_json=as_json)
