"""`weft shell`: a shell on the cluster, beside a job, or the terminal of a job that has one."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from weft.cli.job_files.job_options import Flags
from weft.cli.options.from_fields import options_from_fields
from weft.cli.view.errors import user_errors
from weft.service.responses.answers import JobAnswer


@options_from_fields
def shell(
    flags: Flags,
    job: Annotated[
        str,
        typer.Argument(
            help="A job to open a shell beside, or whose terminal to return to.", metavar="[ID]"
        ),
    ] = "",
) -> None:
    """Open a shell on the cluster, with GPUs if you ask for some.

    The same as `weft run --pty -- bash`. The shell is a job: it waits for its GPUs, and ends when
    the shell exits or when nothing is typed or printed for an hour (--idle-timeout). If the
    connection is lost, `weft shell ID` reconnects.

    With the ID of any other running job, the shell opens beside it: on its machine, in its folder,
    with its variables, GPUs and limits. It ends when the connection or the job ends.
    """
    from weft.cli.commands.jobs.run import run_session
    from weft.cli.connect.client import Client, at
    from weft.cli.connect.session import attach
    from weft.cli.view.screen import notes

    if not job:
        run_session([os.environ.get("SHELL") or "bash"], flags)
    with user_errors():
        client = Client()
        job = client.get(JobAnswer, at("jobs", job)).id
        remarks = notes()
        code = attach(client, job, lambda text: remarks.print(f"{job}: {text}"))
    raise typer.Exit(code)
