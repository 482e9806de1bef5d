"""`weft cancel`, `suspend`, `resume` and `priority`: one thing done to several jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated, get_args

import typer

from weft.cli.connect.client import RequestRefused, ServiceClient, active_jobs
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, interactive, print_json
from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model.job import PriorityWord
from weft.service.responses.answers import Done, JobAnswer
from weft_client.connection import at

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
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def do_to_all(
    jobs: list[str],
    verb: str,
    done_word: str,
    do: Callable[[ServiceClient, str], object],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Do it to all jobs that are meant, one after the other, and say to which it was done."""
    done: list[str] = []
    answers: list[str] = []
    with user_errors():
        client = ServiceClient()
        try:
            for text in jobs:
                for job in find_meant(client, text, verb, yes=yes):
                    answer = do(client, job)
                    done_text = answer if isinstance(answer, str) else ""
                    if not done_text.startswith(NOTHING_DONE):
                        done.append(job)
                    answers += [done_text.removeprefix(NOTHING_DONE)] if ": " in done_text else []
        except RequestRefused as error:
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
    """Ask the person at the terminal; return false without one."""
    return sys.stdin.isatty() and typer.confirm(f"{what}; do it?")


def find_meant(client: ServiceClient, text: str, verb: str, *, yes: bool) -> list[str]:
    """Ids of the jobs that a text means; those of a pattern after someone has agreed."""
    if not any(sign in text for sign in PATTERN):
        try:
            return [client.get(JobAnswer, at("jobs", text)).id]
        except RequestRefused:
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


def find_active_members(client: ServiceClient, app: str) -> list[str]:
    """Ids of a sweep's or app's jobs that have not ended, the last first: none is to start now."""
    return [job.id for job in active_jobs(client, app=app)][::-1]


def find_matching(client: ServiceClient, pattern: str) -> list[str]:
    """Ids of jobs that have not ended and whose id, with or without its tenant, or name fits."""
    return [
        job.id
        for job in active_jobs(client)
        if any(fnmatchcase(name, pattern) for name in (job.id, job.id.rpartition(":")[2], job.name))
    ]


def confirm(pattern: str, jobs: list[str], verb: str) -> bool:
    """Ask the person at the terminal; without one, raise an error that says what to do."""
    some = ", ".join(jobs[:SHOWN]) + (", ..." if len(jobs) > SHOWN else "")
    count = f"{len(jobs)} job{'s' * (len(jobs) > 1)}"
    if not interactive():
        raise InvalidConfig(
            f"{pattern!r} matches {count}: {some}", hint=f"add --yes to {verb} them all"
        )
    return typer.confirm(f"{verb} {count}: {some}?", default=False, err=True)


def cancel(jobs: Jobs, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Cancel jobs; running ones get their grace time to save.

    A sweep or app stands for all of its jobs. A pattern matches the ids and names of jobs that have
    not ended; the command asks before it cancels them.
    """

    def do(client: ServiceClient, job: str) -> str:
        done = client.delete(at("jobs", job))
        return "" if done.changed else f"{NOTHING_DONE}{done.done}"

    do_to_all(jobs, "cancel", "cancelled", do, yes=yes, as_json=as_json)


def suspend(jobs: Jobs, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Suspend jobs: running ones leave their GPUs and wait for `weft resume`.

    Where the engine can, a job is frozen or moved to host memory and later continues where it was;
    otherwise it saves and later continues from its last checkpoint. The command asks before it
    suspends a job that would lose all its work.
    """

    def do(client: ServiceClient, job: str) -> str:
        path = at("jobs", job, "suspend")
        try:
            return client.post(Done, path).done
        except RequestRefused as error:
            if error.field != "restart" or not (yes or agrees(error.what)):
                raise
        return client.post(Done, path, {"restart": True}).done

    do_to_all(jobs, "suspend", "suspended", do, yes=yes, as_json=as_json)


def resume(jobs: Jobs, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Resume suspended jobs where they were, or from a checkpoint.

    A resumed job waits until there is room for it. Jobs that are not suspended stay as they are.
    """

    def do(client: ServiceClient, job: str) -> str:
        return client.post(Done, at("jobs", job, "resume")).done

    do_to_all(jobs, "resume", "resumed", do, yes=yes, as_json=as_json)


def priority(
    job: Annotated[
        str, typer.Argument(help="An id, a name, @last, a sweep or a pattern.", metavar="ID")
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
    with user_errors():
        if to not in get_args(PriorityWord):
            raise InvalidConfig(
                f"no priority named {to!r}{did_you_mean(to, get_args(PriorityWord))}",
                hint="CLASS is guaranteed, normal, spot or opportunistic",
            )

    def do(client: ServiceClient, name: str) -> None:
        client.put(Done, at("jobs", name, "priority"), {"priority": to})

    do_to_all([job], f"give priority {to} to", f"{to} now:", do, yes=yes, as_json=as_json)
