"""`weft fetch`: copies of the files that a job left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.connect.client import ServiceClient
from weft.cli.job_files.job_options import misuse
from weft.cli.options import shared as o
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.cli.view.tables import TableColumn, fit_columns
from weft.service.responses.watch import Artifact, Artifacts
from weft_client.connection import at
from weft_client.fetching import fetch_files


def fetch(
    job: Annotated[str, typer.Argument(help="A job's id or name.", metavar="JOB")],
    path: Annotated[
        str, typer.Argument(help="A file, or a folder such as out/best; default: all.")
    ] = "",
    to: Annotated[
        Path, typer.Option("--to", help="The folder that they are copied into.")
    ] = Path(),
    listed: Annotated[bool, typer.Option("--list", help="Show the files; copy none.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Copy the files that a job left in its folder `artifacts`.

    Its job file names that folder, such as `artifacts: out`.
    """
    with user_errors(), misuse():
        client = ServiceClient()
        held = client.get(Artifacts, at("jobs", job, "artifacts"))
        names = [] if listed else [file.path for file in held.files]
        copied = fetch_files(client, job, names, "" if listed else path, to)
    if as_json:
        print_json(held if listed else {"copied": [str(place) for place in copied]})
        return
    screen = console()
    if listed:
        columns: list[TableColumn[Artifact]] = [
            TableColumn("file", lambda file: words.plain(file.path), rest=True),
            TableColumn("bytes", lambda file: f"{file.size:,}", right=True),
        ]
        screen.print(fit_columns(columns, held.files, screen.width))
    for place in copied:
        typer.echo(words.plain(str(place)))
    if held.left_out:
        screen.print(f"{held.left_out} left out: no plain files of its user", style="dim")
    if not held.files:
        screen.print(f"{job} has no files in {held.folder} so far", style="dim")
