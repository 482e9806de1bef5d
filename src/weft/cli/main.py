"""`weft`: the commands together."""

from __future__ import annotations

import typer

from weft.cli.compare import compare
from weft.cli.list import list_parts
from weft.cli.simulate import simulate
from weft.core.registry import find, names

cli = typer.Typer(
    name="weft",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A deep-learning GPU-cluster scheduler: the same policies in simulation and for real.",
)
cli.command()(simulate)
cli.command()(compare)
cli.command("list")(list_parts)


@cli.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    """Schedule deep-learning jobs on GPU clusters."""
    if version:
        from weft import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point; plug-ins may add commands."""
    for name in names("command"):
        cli.command(name)(find("command", name))
    cli()
