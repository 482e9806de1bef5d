"""`weft plan`: what would happen to a job now."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from weft.cli.commands.cluster.what_if import CHANGE, MORE_NODES, Limits, Weights
from weft.cli.commands.jobs.job import interval
from weft.cli.commands.jobs.submit import WHAT, bodies, send
from weft.cli.connect.client import ServiceClient
from weft.cli.job_files.job_options import Flags
from weft.cli.options import shared as o
from weft.cli.options.shared import options_from_fields, read_changes
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.cli.view.tables import details
from weft.service.responses.watch import Planned

ANYTHING = ("true",)  # a command that every machine has


@options_from_fields
def plan(
    flags: Flags,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{WHAT}; without any, a job described by the options.", metavar="FILE..."
        ),
    ] = None,
    if_policy: Annotated[
        str | None,
        CHANGE("--policy", "-p", help="Assume that this policy decides.", metavar="NAME"),
    ] = None,
    if_limit: Limits = None,
    if_weight: Weights = None,
    add_nodes: Annotated[str, CHANGE("--add-nodes", **MORE_NODES)] = "",
    as_json: o.AsJson = False,
) -> None:
    """Show what would happen to a job now.

    Nothing is queued. Takes the arguments of `weft submit`, and assumptions to try: `--gpus 2` for
    another size of this job; `--policy`, `--limit`, `--weight`, `--add-nodes` for the cluster.
    """
    with user_errors():
        client = ServiceClient()
        change = read_changes(if_policy, if_limit, if_weight, add_nodes)
        jobs = bodies(what or ANYTHING, flags)
        if not what:
            jobs = [("a job", body) for _, body in jobs]
        answers = [_ask(client, path, body, change) for path, body in jobs]
    if as_json:
        print_json(answers[0] if len(answers) == 1 else answers)
        return
    for (path, body), answer in zip(jobs, answers, strict=True):
        console().print(render_plan(path or str(body.get("name", "")), answer))


def _ask(client: ServiceClient, path: str, body: dict[str, Any], change: dict[str, Any]) -> Planned:
    if not change:
        return send(Planned, client, path, body, "/plan")
    return send(Planned, client, path, {"job": body, "change": change}, "/plan/what-if")


def render_plan(name: str, answer: Planned) -> Any:
    """The answer as a person reads it."""
    now = answer.starts_now
    title = Text(f"{name}: ", style="bold")
    title.append("would start now" if now else "would wait", style="green" if now else "yellow")
    rows = details(
        [
            ("holds", words.gpus(answer.allocation)),
            ("on", words.where(answer.allocation)),
            ("displaces", ", ".join(ahead.id or ahead.name for ahead in answer.displaces)),
            (
                "moves",
                "\n".join(f"{moved.id or moved.name}: {moved.text}" for moved in answer.moves),
            ),
            ("reason", answer.reason),
            ("start", "" if now else interval(answer.start)),
        ]
    )
    return Group(title, rows)
