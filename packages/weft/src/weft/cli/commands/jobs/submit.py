"""`weft submit`: queue a job and print its id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from weft.cli.commands.jobs.wait import await_all
from weft.cli.connect.batch_client import begin_client
from weft.cli.connect.client import RequestRefused, ServiceClient
from weft.cli.job_files.job_file import FILES, from_command, from_file, from_sbatch
from weft.cli.job_files.job_options import Flags
from weft.cli.job_files.sbatch import is_sbatch
from weft.cli.options import shared as o
from weft.cli.options.shared import options_from_fields
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, notes, print_json
from weft.service.responses.answers import Made

T = TypeVar("T")

WHAT = "Job files (.yaml, .json), a Slurm script, or a command after `--`"
What = Annotated[list[str], typer.Argument(help=f"{WHAT}.", metavar="FILE...")]


@options_from_fields
def submit(
    what: What,
    flags: Flags,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id alone.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until they have ended, and exit as they did.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Queue jobs and print their ids.

    From files, or from a command: `weft submit --gpus 2 -- python train.py`.
    """
    with user_errors():
        client = ServiceClient()
        made = [send(Made, client, path, body) for path, body in bodies(what, flags)]
        if any(job.by_client for job in made):
            begin_client(client)
    if as_json:
        print_json(made[0] if len(made) == 1 else made)
    elif quiet:
        typer.echo("\n".join(job.id for job in made))
    else:
        for job in made:
            console().print(f"submitted {job.id}{describe_next(job)}")
            if job.warning:
                notes().print(f"{job.id} is {job.warning}")
    if wait:
        with user_errors():
            ids = [job_id for job in made for job_id in job.jobs or [job.id]]
            raise typer.Exit(await_all(client, ids, quiet=quiet)[1])


def describe_next(made: Made) -> str:
    """Suggest the next command for new jobs."""
    if made.jobs:
        return f", {len(made.jobs)} jobs; `weft jobs {made.id}` shows them"
    return f"; `weft logs -f {made.id}` follows it"


def bodies(what: Sequence[str], flags: Flags) -> list[tuple[str, dict[str, Any]]]:
    """Every job that was named, with the file it comes from (none for a command)."""
    remark = notes().print
    if all(word.endswith(FILES) for word in what):
        return [(word, from_file(Path(word), flags, remark)) for word in what]
    first = Path(what[0])
    if is_sbatch(first):
        return [(what[0], from_sbatch(first, what[1:], flags, remark))]
    return [("", from_command(what, flags))]


def send(
    kind: type[T], client: ServiceClient, path: str, body: dict[str, Any], to: str = "/jobs"
) -> T:
    """The service's answer to a job; a mistake names the file."""
    try:
        return client.post(kind, to, body)
    except RequestRefused as error:
        if path:
            error.what = f"{path}: {error.what}"
        raise
