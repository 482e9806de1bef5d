"""`weft join`: this machine as one more node of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.view.errors import user_errors
from weft.core.paths import expand

TOKEN = Path("~/.weft/ray-token")


def join(
    address: Annotated[
        str, typer.Argument(help="HOST:PORT of the head, as `weft serve --engine ray` prints it.")
    ],
    name: Annotated[
        str, typer.Option(help="What the node is called; default: its host name.")
    ] = "",
    kind: Annotated[str, typer.Option(help="The kind of its GPUs; default: detected.")] = "",
    gpus: Annotated[
        int | None, typer.Option(help="How many of its GPUs to use; default: all.", min=0)
    ] = None,
    slots: Annotated[
        int, typer.Option(help="CPU slots where there are no GPUs; 0: one per core.", min=0)
    ] = 0,
    ip: Annotated[
        str, typer.Option(help="Its address for the other nodes; default: detected.")
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the cluster's token; default: read from stdin.")
    ] = None,
    files: Annotated[
        str,
        typer.Option(help="Folder for job files if there is no shared folder.", metavar="FOLDER"),
    ] = "",
    leave_s: Annotated[
        float, typer.Option(help="Seconds for jobs to save and move when it leaves.", min=0)
    ] = 60.0,
    unit: Annotated[
        bool | None,
        typer.Option(
            "--install/--no-install",
            "--unit/--no-unit",
            help="Write a systemd unit that joins at every boot, and exit; default: ask.",
        ),
    ] = None,
) -> None:
    """Make this machine a node of a cluster.

    On Ctrl-C or SIGTERM the machine leaves: its jobs save and move to other nodes.
    """
    with user_errors():
        from weft.app.join import Joining, find_token, join_cluster, write_join_unit

        asks = sys.stdin.isatty() and sys.stdout.isatty()
        token = find_token(token_file, expand(TOKEN), _read_token)
        joining = Joining(address, token, name, kind, gpus, slots, ip, files, leave_s)
        if unit or (unit is None and asks and typer.confirm("join again at every boot?")):
            path, command = write_join_unit(joining)
            typer.echo(f"wrote {path}; this switches it on:\n  {command}")
            return
        join_cluster(joining, typer.echo)


def _read_token() -> bytes:
    """From a pipe, or asked of a person; no more of it than any token has."""
    if sys.stdin.isatty():
        return str(typer.prompt("token of the cluster", hide_input=True)).encode(errors="replace")
    return sys.stdin.buffer.read(1 << 16)
