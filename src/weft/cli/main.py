"""`weft`: the commands together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from weft.cli.commands.accounting import accounting
from weft.cli.commands.cancel import cancel
from weft.cli.commands.compare import compare
from weft.cli.commands.demo import demo
from weft.cli.commands.explain import explain
from weft.cli.commands.job import job
from weft.cli.commands.jobs import jobs
from weft.cli.commands.list import list_parts
from weft.cli.commands.logs import logs
from weft.cli.commands.nodes import drain, nodes, undrain
from weft.cli.commands.plan import plan
from weft.cli.commands.policy import policy
from weft.cli.commands.profile import profile
from weft.cli.commands.quota import quota
from weft.cli.commands.run import run
from weft.cli.commands.serve import serve
from weft.cli.commands.simulate import simulate
from weft.cli.commands.submit import submit
from weft.cli.commands.token import token
from weft.cli.commands.top import top
from weft.cli.commands.webhook import webhook
from weft.cli.commands.what_if import what_if
from weft.core.registry import find, names

SIMULATE, WORK, CLUSTER = "Simulate", "Your jobs", "The cluster"
# Everything after the first word that is no option is the job's own command line.
COMMAND = {"allow_interspersed_args": False}
COMMANDS: tuple[tuple[str, str, Callable[..., Any], dict[str, Any]], ...] = (
    (SIMULATE, "simulate", simulate, {}),
    (SIMULATE, "compare", compare, {}),
    (SIMULATE, "list", list_parts, {}),
    (WORK, "run", run, COMMAND),
    (WORK, "submit", submit, {}),
    (WORK, "plan", plan, {}),
    (WORK, "jobs", jobs, {}),
    (WORK, "job", job, {}),
    (WORK, "logs", logs, {}),
    (WORK, "explain", explain, {}),
    (WORK, "cancel", cancel, {}),
    (WORK, "profile", profile, COMMAND),
    (CLUSTER, "serve", serve, {}),
    (CLUSTER, "demo", demo, {}),
    (CLUSTER, "top", top, {}),
    (CLUSTER, "nodes", nodes, {}),
    (CLUSTER, "drain", drain, {}),
    (CLUSTER, "undrain", undrain, {}),
    (CLUSTER, "policy", policy, {}),
    (CLUSTER, "what-if", what_if, {}),
    (CLUSTER, "accounting", accounting, {}),
)

cli = typer.Typer(
    name="weft",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A deep-learning GPU-cluster scheduler: the same policies in simulation and for real.",
)
for panel, name, function, settings in COMMANDS:
    cli.command(name, rich_help_panel=panel, context_settings=settings or None)(function)
for group, name in ((token, "token"), (quota, "quota"), (webhook, "webhook")):
    cli.add_typer(group, name=name, rich_help_panel=CLUSTER)


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
