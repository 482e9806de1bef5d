"""`weft webhook`: receivers that are notified when jobs change."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.commands.cluster.token import delete_each
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.service.responses.admin import HookAnswer, HookList, NewHook

webhook = typer.Typer(
    help="Notify other services of state changes (admins).",
    no_args_is_help=True,
    add_completion=False,
)


@webhook.command("list")
def list_webhooks(as_json: o.AsJson = False) -> None:
    """List webhooks, without their secrets."""
    from weft.cli.view import words
    from weft.cli.view.tables import Column, list_at

    columns: list[Column[HookAnswer]] = [
        Column("id", lambda row: row.id),
        Column("url", lambda row: row.url, most=60),
        Column("format", lambda row: row.format, drop=2),
        Column("tenant", lambda row: row.tenant or "(all)"),
        Column("states", lambda row: ", ".join(row.states) or "(all)"),
        Column("created", lambda row: words.moment(row.created), drop=1),
    ]
    none = "no webhooks; `weft webhook add URL` makes one"
    list_at("/webhooks", HookList, lambda reply: reply.webhooks, columns, none, as_json=as_json)


@webhook.command()
def add(
    url: Annotated[
        str,
        typer.Argument(help="Where to post, http or https; or mailto:ADDRESS,...", metavar="URL"),
    ],
    tenant: Annotated[str, typer.Option(help="Only changes of this tenant's jobs.")] = "",
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", help="Only changes to this state; repeatable."),
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", help="weft: signed JSON; slack: one line of chat for Slack."),
    ] = "weft",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="The id alone.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Notify URL of state changes from now on; messages are signed with the secret shown here."""
    from weft.cli.connect.client import Client
    from weft.cli.view.screen import console, print_json

    with user_errors():
        body = {"url": url, "tenant": tenant or None, "states": state or [], "format": form}
        made = Client().post(NewHook, "/webhooks", body)
    if as_json:
        print_json(made)
    elif quiet:
        typer.echo(made.id)
    else:
        screen = console()
        if made.format != "weft":
            screen.print(f"webhook {made.id}, notified as {made.format}", soft_wrap=True)
            return
        screen.print(f"webhook {made.id}, secret {made.secret}", soft_wrap=True)
        screen.print("keep the secret: it is not shown again", style="dim")


@webhook.command()
def remove(
    ids: Annotated[list[str], typer.Argument(help="From `weft webhook list`.", metavar="ID...")],
    as_json: o.AsJson = False,
) -> None:
    """Stop notifying these webhooks."""
    delete_each("webhooks", ids, "removed", as_json=as_json)
