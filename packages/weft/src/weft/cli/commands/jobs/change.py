"""One thing done to several jobs: which are meant, and how it went."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft.cli.connect.client import Client

PATTERN = "*?["
SHOWN = 20
NOTHING_DONE = "nothing: "  # how an answer begins that tells why
Jobs = Annotated[
    list[str],
    typer.Argument(
        help="Ids, names, unique prefixes, @last, sweeps, or patterns such as 'try-*'.",
        metavar="ID...",
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask."),
]


def do_to_all(
    jobs: list[str],
    verb: str,
    done_word: str,
    do: Callable[[Client, str], object],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Do it to all jobs that are meant, one after the other, and say to which it was done."""
    from weft.cli.connect.client import Client, Refused
    from weft.cli.view.errors import user_errors
    from weft.cli.view.screen import console, print_json

    done: list[str] = []
    answers: list[str] = []
    with user_errors():
        client = Client()
        try:
            for text in jobs:
                for job in find_meant(client, text, verb, yes=yes):
                    answer = do(client, job)
                    done_text = answer if isinstance(answer, str) else ""
                    if not done_text.startswith(NOTHING_DONE):
                        done.append(job)
                    answers += [done_text.removeprefix(NOTHING_DONE)] if ": " in done_text else []
        except Refused as error:
            if done:
                error.what += f" ({', '.join(done)} {done_word} before)"
            raise
    if as_json:
        print_json({done_word: done})
    else:
        if done or not answers:
            word = f"{done_word} {', '.join(done)}" if done else f"nothing was {done_word}"
            console().print(word)
        for text in answers:
            console().print(text)


def agrees(what: str) -> bool:
    """Whether the person at the terminal says yes; no without a terminal."""
    return sys.stdin.isatty() and typer.confirm(f"{what}; do it?")


def find_meant(client: Client, text: str, verb: str, *, yes: bool) -> list[str]:
    """Ids of the jobs that a text means; those of a pattern after someone has agreed."""
    from weft.cli.connect.client import Refused, at
    from weft.core.errors import InvalidConfig
    from weft.service.responses.answers import JobAnswer

    if not any(sign in text for sign in PATTERN):
        try:
            return [client.get(JobAnswer, at("jobs", text)).id]
        except Refused:
            active_members = find_active_members(client, text)
            if not active_members:
                raise
            return active_members
    active_members = find_matching(client, text)
    if not active_members:
        raise InvalidConfig(
            f"no job that has not ended matches {text!r}", hint="`weft jobs` lists them"
        )
    return active_members if yes or confirm(text, active_members, verb) else []


def find_active_members(client: Client, app: str) -> list[str]:
    """Ids of a sweep's or app's jobs that have not ended, the last first: none is to start now."""
    from weft.cli.connect.pages import active_jobs

    return [job.id for job in active_jobs(client, app=app)][::-1]


def find_matching(client: Client, pattern: str) -> list[str]:
    """Ids of jobs that have not ended and whose id, with or without its tenant, or name fits."""
    from fnmatch import fnmatchcase

    from weft.cli.connect.pages import active_jobs

    return [
        job.id
        for job in active_jobs(client)
        if any(fnmatchcase(name, pattern) for name in (job.id, job.id.rpartition(":")[2], job.name))
    ]


def confirm(pattern: str, jobs: list[str], verb: str) -> bool:
    """Whether someone at the terminal agrees; without one, an error that says what to do."""
    from weft.cli.view.screen import interactive
    from weft.core.errors import InvalidConfig

    some = ", ".join(jobs[:SHOWN]) + (", ..." if len(jobs) > SHOWN else "")
    count = f"{len(jobs)} job{'s' * (len(jobs) > 1)}"
    if not interactive():
        raise InvalidConfig(
            f"{pattern!r} matches {count}: {some}", hint=f"add --yes to {verb} them all"
        )
    return typer.confirm(f"{verb} {count}: {some}?", default=False, err=True)
