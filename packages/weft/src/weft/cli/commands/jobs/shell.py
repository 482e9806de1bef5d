"""`weft shell`, `weft forward`: a terminal on the cluster or of a job, and a port of one."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from weft.cli.commands.jobs.job import JobId
from weft.cli.commands.jobs.run import run_session
from weft.cli.connect.client import ServiceClient
from weft.cli.connect.session import Forwarding, attach
from weft.cli.job_files.job_options import Flags
from weft.cli.options.shared import options_from_fields
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, notes
from weft.service.responses.answers import JobAnswer
from weft_client.connection import at


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
    if not job:
        run_session([os.environ.get("SHELL") or "bash"], flags)
    with user_errors():
        client = ServiceClient()
        job = client.get(JobAnswer, at("jobs", job)).id
        remarks = notes()
        code = attach(client, job, lambda text: remarks.print(f"{job}: {text}"))
    raise typer.Exit(code)


def forward(
    job: JobId,
    port: Annotated[int, typer.Argument(help="The port that the job listens on.", min=1)],
    local: Annotated[
        int | None,
        typer.Option(
            help="The port here; default: the same, or any if that is taken; 0: any.", min=0
        ),
    ] = None,
) -> None:
    """Open a job's port on this machine: a notebook, TensorBoard, a debugger.

    Runs until Ctrl-C. Only the job's owner can forward a port, and only a port that the job's own
    processes listen on.
    """
    with user_errors():
        client = ServiceClient()
        job = client.get(JobAnswer, at("jobs", job)).id
        remarks = notes()
        say = lambda text: remarks.print(text, style="dim", soft_wrap=True)  # noqa: E731
        forwarding = Forwarding(client, job, port, local, say)
        console().print(f"http://127.0.0.1:{forwarding.local} is port {port} of {job}; Ctrl-C ends")
        try:
            forwarding.serve()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
