"""`weft wait`: block until jobs have ended."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from weft.cli.commands.jobs.change import PATTERN, Jobs, find_meant
from weft.cli.connect.client import RequestRefused, ServiceClient, every_job
from weft.cli.connect.follow import Follower, exit_code
from weft.cli.options import shared as o
from weft.cli.options.shared import seconds
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import notes, print_json
from weft.service.responses.answers import JobAnswer
from weft_client.connection import at

TIMED_OUT = 124  # as of timeout(1)
INTERRUPTED = 130


def wait(
    jobs: Jobs,
    timeout: Annotated[
        str | None, typer.Option(help="Wait no longer than 90s, 30m, 2h; exit code 124.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Wait until jobs have ended, and exit as they did.

    Exits with 0 if all succeeded, otherwise with the exit code of the first job in the list that
    did not (130 if it was cancelled). A sweep or app stands for all of its jobs, a pattern for the
    jobs that have not ended. If the service restarts meanwhile, the command waits for it.
    """
    with user_errors():
        client = ServiceClient()
        until = math.inf if timeout is None else time.monotonic() + seconds(timeout, "--timeout")
        meant = list(dict.fromkeys(job for text in jobs for job in find_all(client, text)))
        states, code = await_all(client, meant, until, quiet=quiet)
    waiting = [job for job in meant if job not in states]
    if as_json:
        print_json({"ended": states, "waiting": waiting})
    elif waiting and not quiet:
        notes().print(f"not ended within {timeout}: {', '.join(waiting)}", soft_wrap=True)
    raise typer.Exit(TIMED_OUT if waiting else code)


def await_all(
    client: ServiceClient, jobs: Sequence[str], until: float = math.inf, *, quiet: bool = False
) -> tuple[dict[str, str], int]:
    """Return how jobs ended until `until`, and the exit code that follows."""
    states: dict[str, str] = {}
    code, remarks = 0, notes()
    try:
        for job in jobs:

            def say(text: str, job: str = job) -> None:
                if not quiet:
                    remarks.print(f"{job}: {text}", style="dim", soft_wrap=True)

            ended = Follower(client, job, lambda _: None, say).until_ended(until)
            if ended is not None:
                states[job] = ended.state
                code = code or exit_code(ended)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    return states, code


def find_all(client: ServiceClient, text: str) -> list[str]:
    """Ids of the jobs that a text means; of a sweep also those that have ended."""
    if any(sign in text for sign in PATTERN):
        return find_meant(client, text, "wait for", yes=True)
    try:
        return [client.get(JobAnswer, at("jobs", text)).id]
    except RequestRefused:
        members = [job.id for job in every_job(client, app=text)]
        if not members:
            raise
        return members
