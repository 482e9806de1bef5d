"""`weft cancel`: withdraw jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options as o
from weft.cli.view.errors import user_errors

if TYPE_CHECKING:
    from weft.cli.client import Client

PATTERN = "*?["
SHOWN = 20


def cancel(
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Ids, names, unique beginnings, @last, sweeps, or patterns such as 'try-*'.",
            metavar="ID...",
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before what a pattern matches goes.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Cancel jobs; those that run get their time to leave.

    A sweep or app means all of its jobs. A pattern means jobs that have not ended, by id or
    name; it is asked before they go.
    """
    from weft.cli.client import Client, Refused, at
    from weft.cli.view.screen import console, print_json

    done: list[str] = []
    with user_errors():
        client = Client()
        try:
            for text in jobs:
                for job in meant(client, text, yes=yes):
                    client.delete(at("jobs", job))
                    done.append(job)
        except Refused as error:
            if done:
                error.what += f" ({', '.join(done)} cancelled before)"
            raise
    if as_json:
        print_json({"cancelled": done})
    else:
        console().print(f"cancelled {', '.join(done)}" if done else "nothing was cancelled")


def meant(client: Client, text: str, *, yes: bool) -> list[str]:
    """Ids of the jobs that a text means; those of a pattern after somebody has agreed."""
    from weft.cli.client import Refused, at
    from weft.core.errors import InvalidConfig
    from weft.service.responses import JobAnswer

    if not any(sign in text for sign in PATTERN):
        try:
            return [client.get(JobAnswer, at("jobs", text)).id]
        except Refused:
            found = find_active_members(client, text)
            if not found:
                raise
            return found
    found = find_matching(client, text)
    if not found:
        raise InvalidConfig(
            f"no job that has not ended matches {text!r}", hint="`weft jobs` lists them"
        )
    return found if yes or confirm(text, found) else []


def find_active_members(client: Client, app: str) -> list[str]:
    """Ids of a sweep's or app's jobs that have not ended, the last first: none is to start now."""
    from weft.cli.pages import active_jobs

    return [job.id for job in active_jobs(client, app=app)][::-1]


def find_matching(client: Client, pattern: str) -> list[str]:
    """Ids of jobs that have not ended and whose id, with or without its tenant, or name fits."""
    from fnmatch import fnmatchcase

    from weft.cli.pages import active_jobs

    return [
        job.id
        for job in active_jobs(client)
        if any(fnmatchcase(name, pattern) for name in (job.id, job.id.rpartition(":")[2], job.name))
    ]


def confirm(pattern: str, found: list[str]) -> bool:
    """Whether somebody at the terminal agrees; without one, an error that says what to do."""
    from weft.cli.view.screen import interactive
    from weft.core.errors import InvalidConfig

    some = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
    count = f"{len(found)} job{'s' * (len(found) > 1)}"
    if not interactive():
        raise InvalidConfig(
            f"{pattern!r} matches {count}: {some}", hint="add --yes to cancel them all"
        )
    return typer.confirm(f"cancel {count}: {some}?", default=False, err=True)
