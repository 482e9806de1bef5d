"""`weft run`: queue a command and stay with it until it ends."""

from __future__ import annotations

import os
from typing import Annotated, NoReturn

import typer

from weft.cli.connect.batch_client import submit_job
from weft.cli.connect.client import ServiceClient
from weft.cli.connect.follow import Follower, exit_code
from weft.cli.connect.session import attach
from weft.cli.job_files.job_file import from_command
from weft.cli.job_files.job_options import Flags
from weft.cli.options.shared import options_from_fields
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import interactive, notes, write_bytes
from weft.core.errors import InvalidConfig
from weft_client.connection import at

INTERRUPTED = 130
GRACE_S = 5.0  # what a terminal's process gets to leave: a shell has nothing to save


@options_from_fields
def run(
    command: Annotated[
        list[str], typer.Argument(help="What to run, after `--`.", metavar="COMMAND...")
    ],
    flags: Flags,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the id and exit, as `weft submit` does.")
    ] = False,
    pty: Annotated[
        bool, typer.Option("--pty", "-t", help="Give it a terminal, as `ssh -t` does.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the job's own output.")
    ] = False,
) -> None:
    """Run a command on the cluster, from this folder.

    Prints the job's output until it ends, across restarts, and exits with the job's exit code.
    Ctrl-C asks whether to cancel the job; if you decline, the job keeps running.
    """
    if pty:
        run_session(command, flags, quiet=quiet, detach=detach)
    with user_errors():
        client = ServiceClient()
        # A user who watches wants to see a mistake, not its repetition.
        body = {"retries": 0, **from_command(command, flags, os.environ)}
        if "sweep" in body:
            raise InvalidConfig(
                "`weft run` follows one job, and this is a sweep", hint="use `weft submit`"
            )
        job = submit_job(client, body)
        if detach:
            typer.echo(job)
            return
        remarks = notes()
        say = (
            (lambda _: None)
            if quiet
            else (lambda text: remarks.print(f"{job}: {text}", style="dim", soft_wrap=True))
        )
        try:
            ended = Follower(client, job, write_bytes, say, attempt=1).until_the_end()
        except KeyboardInterrupt:
            confirm_cancel(client, job)
            raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(exit_code(ended))


def run_session(
    command: list[str], flags: Flags, *, quiet: bool = False, detach: bool = False
) -> NoReturn:
    """Run a command with a terminal, stay in it, and leave with its exit code."""
    with user_errors():
        client = ServiceClient()
        plain = {"retries": 0, "preemptible": False, "checkpoint": {"grace_s": GRACE_S}}
        own = {"TERM": os.environ.get("TERM") or "xterm-256color"}
        body = {"pty": True, **plain, **from_command(command, flags, os.environ)}
        body["env"] = {**own, **body.get("env", {})}
        job = submit_job(client, body)
        if detach:
            typer.echo(job)
            raise typer.Exit(0)
        remarks = notes()
        say = (lambda _: None) if quiet else (lambda text: remarks.print(f"{job}: {text}"))
        try:
            code = attach(client, job, say)
        except KeyboardInterrupt:  # the user no longer wants to wait
            confirm_cancel(client, job)
            raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


def confirm_cancel(client: ServiceClient, job: str) -> None:
    """Cancel the job if the user confirms."""
    typer.echo("", err=True)
    if interactive() and typer.confirm(f"cancel {job}?", default=False, err=True):
        client.delete(at("jobs", job))
        notes().print(f"{job}: cancelled", style="dim")
        return
    notes().print(
        f"{job} keeps running; `weft logs -f {job}` follows it, `weft cancel {job}` ends it"
    )
