"""`weft logs`: what a job prints."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.commands.jobs.explain import JobId
from weft.cli.view.errors import user_errors
from weft.service.responses.answers import JobAnswer


def logs(
    job: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")
    ] = False,
    rank: Annotated[int, typer.Option(help="Which process of the job.", min=0)] = 0,
    attempt: Annotated[
        int | None, typer.Option(help="Print only this attempt; with -f, start from it.", min=1)
    ] = None,
) -> None:
    """Print a job's output.

    Prints all attempts in order; if there are several, a line marks where each begins.

    With -f, follows the output across restarts of the job and of the service until the job ends,
    and exits with the job's exit code.
    """
    from weft.cli.connect.client import Client, at
    from weft.cli.connect.follow import Follower, exit_code
    from weft.cli.view.screen import notes, write_bytes

    remarks = notes()
    with user_errors():
        client = Client()
        answer = client.get(JobAnswer, at("jobs", job))
        job = answer.id
        follower = Follower(
            client,
            job,
            write_bytes,
            lambda text: remarks.print(f"{job}: {text}", style="dim", soft_wrap=True),
            rank,
            attempt or 1,
            mark=lambda number: write_bytes(f"--- attempt {number} ---\n".encode()),
        )
        if follow:
            try:
                raise typer.Exit(exit_code(follower.until_the_end()))
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
        elif not follower.catch_up(attempt or answer.attempt):
            why = answer.reason or f"it is {answer.state}"
            remarks.print(f"{job} has printed nothing ({why})", style="dim")
