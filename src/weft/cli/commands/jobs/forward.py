"""`weft forward`: a job's port on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.commands.jobs.explain import JobId
from weft.cli.view.errors import user_errors
from weft.service.responses.answers import JobAnswer


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
    from weft.cli.connect.client import Client, at
    from weft.cli.connect.forwarding import Forwarding
    from weft.cli.view.screen import console, notes

    with user_errors():
        client = Client()
        job = client.get(JobAnswer, at("jobs", job)).id
        remarks = notes()
        say = lambda text: remarks.print(text, style="dim", soft_wrap=True)  # noqa: E731
        forwarding = Forwarding(client, job, port, local, say)
        console().print(f"http://127.0.0.1:{forwarding.local} is port {port} of {job}; Ctrl-C ends")
        try:
            forwarding.serve()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
