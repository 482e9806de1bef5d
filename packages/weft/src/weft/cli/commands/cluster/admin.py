"""`weft token`, `weft webhook`, `weft audit`: what admins look after."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from weft.cli.connect.client import ServiceClient
from weft.cli.options import shared as o
from weft.cli.options.shared import seconds
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.cli.view.tables import TableColumn, list_at, show_rows
from weft.service.responses.admin import (
    AuditAnswer,
    AuditEntry,
    HookAnswer,
    HookList,
    NewHook,
    NewToken,
    TokenAnswer,
    TokenList,
)
from weft_client.connection import at

token = typer.Typer(
    help="Create, rotate, list and revoke tokens (admins).",
    no_args_is_help=True,
    add_completion=False,
)


@token.command()
def create(
    tenant: Annotated[
        str, typer.Argument(help="The tenant it belongs to; may be empty for an admin.")
    ] = "",
    role: Annotated[str, typer.Option(help="admin, user or viewer.")] = "user",
    name: Annotated[str, typer.Option(help="A note on who or what will use it.")] = "",
    account: Annotated[
        str, typer.Option(help="The account whose user its jobs run as; default: its tenant's.")
    ] = "",
    expires: Annotated[
        str, typer.Option(help="When it expires, such as 30d or 12h; default: never.")
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the token alone.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Create a token; it is shown only once."""
    with user_errors():
        lasts = {"expires_s": seconds(expires, "--expires")} if expires else {}
        fields = {"tenant": tenant, "role": role, "name": name, "account": account}
        made = ServiceClient().post(
            NewToken,
            "/tokens",
            {**lasts, **{field: text for field, text in fields.items() if text}},
        )
    show_secret(made, quiet=quiet, as_json=as_json)


def show_secret(made: NewToken, *, quiet: bool, as_json: bool) -> None:
    """A new token, the only time that it can be shown."""
    if as_json:
        print_json(made)
    elif quiet:
        typer.echo(made.token)
    else:
        screen = console()
        screen.print(made.token, soft_wrap=True)
        screen.print("keep it: it is not shown again; to use it, set WEFT_TOKEN to it", style="dim")


@token.command()
def rotate(
    token: Annotated[str, typer.Argument(help="From `weft token list`.", metavar="ID")],
    overlap: Annotated[
        str,
        typer.Option(help="How long the old one keeps working, such as 1d or 2h; 0: not at all."),
    ] = "1d",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the token alone.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Create a new token with the same rights, and let the old one expire."""
    with user_errors():
        body = {"overlap_s": seconds(overlap, "--overlap")}
        made = ServiceClient().post(NewToken, at("tokens", token, "rotate"), body)
    show_secret(made, quiet=quiet, as_json=as_json)


@token.command("list")
def list_tokens(as_json: o.AsJson = False) -> None:
    """List tokens, without their secret part."""
    columns: list[TableColumn[TokenAnswer]] = [
        TableColumn("id", lambda row: row.id),
        TableColumn("role", lambda row: row.role),
        TableColumn("tenant", lambda row: row.tenant),
        TableColumn("name", lambda row: row.name, drop=1, most=24),
        TableColumn("created", lambda row: words.moment(row.created), drop=2),
        TableColumn("expires", expiry, drop=1),
    ]
    none = "no tokens: everyone on this machine is an admin"
    list_at("/tokens", TokenList, lambda reply: reply.tokens, columns, none, as_json=as_json)


def expiry(row: TokenAnswer) -> str:
    """Return when a token expires, or `expired`."""
    if not row.expires:
        return ""
    return "expired" if row.expires <= time.time() else words.moment(row.expires)


@token.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(help="From `weft token list`.", metavar="ID...")],
    as_json: o.AsJson = False,
) -> None:
    """Revoke tokens at once."""
    delete_each("tokens", ids, "revoked", as_json=as_json)


def delete_each(what: str, ids: list[str], done: str, *, as_json: bool) -> None:
    """Delete each of `what` at the service, and say that it is done."""
    with user_errors():
        client = ServiceClient()
        for each in ids:
            client.delete(at(what, each))
    if as_json:
        print_json({done: ids})
    else:
        console().print(f"{done} {', '.join(ids)}")


webhook = typer.Typer(
    help="Notify other services of state changes (admins).",
    no_args_is_help=True,
    add_completion=False,
)


@webhook.command("list")
def list_webhooks(as_json: o.AsJson = False) -> None:
    """List webhooks, without their secrets."""
    columns: list[TableColumn[HookAnswer]] = [
        TableColumn("id", lambda row: row.id),
        TableColumn("url", lambda row: row.url, most=60),
        TableColumn("format", lambda row: row.format, drop=2),
        TableColumn("tenant", lambda row: row.tenant or "(all)"),
        TableColumn("states", lambda row: ", ".join(row.states) or "(all)"),
        TableColumn("created", lambda row: words.moment(row.created), drop=1),
    ]
    none = "no webhooks; `weft webhook add URL` makes one"
    list_at("/webhooks", HookList, lambda reply: reply.webhooks, columns, none, as_json=as_json)


@webhook.command()
def add(
    url: Annotated[
        str,
        typer.Argument(
            help="Where to post, http or https; or mailto:ADDRESS,..., in which {user} is the "
            "name of the token that submitted the job.",
            metavar="URL",
        ),
    ],
    tenant: Annotated[str, typer.Option(help="Only changes of this tenant's jobs.")] = "",
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", help="Only changes to this state; repeatable."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="weft: signed JSON; slack: one line of chat for Slack.")
    ] = "weft",
    on_request: Annotated[
        bool,
        typer.Option("--on-request", help="Only the ends of jobs that ask for it: --notify mail."),
    ] = False,
    needs: Annotated[
        bool,
        typer.Option(
            "--needs", help="What needs a person, each once with its next step, not jobs' states."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="The id alone.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Notify URL of state changes from now on; messages are signed with the secret shown here."""
    with user_errors():
        body = {"url": url, "tenant": tenant or None, "states": state or [], "format": form}
        more = {"on_request": on_request, "needs": needs}
        made = ServiceClient().post(NewHook, "/webhooks", {**body, **more})
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


def audit(
    about: Annotated[
        str, typer.Argument(help="A job's id, or a part of a path such as /tokens.")
    ] = "",
    since: Annotated[str, typer.Option(help="Only requests from the last 2h, 7d, ...")] = "",
    name: Annotated[str, typer.Option(help="Only requests with this token: its name or id.")] = "",
    tenant: Annotated[str, typer.Option(help="Only requests with this tenant's tokens.")] = "",
    failed: Annotated[
        bool, typer.Option("--failed", help="Only requests that were refused.")
    ] = False,
    limit: Annotated[
        int, typer.Option(help="How many of the latest entries to show.", min=1, max=10_000)
    ] = 50,
    as_json: o.AsJson = False,
) -> None:
    """Show who did what: requests that changed something or were refused (admins)."""
    with user_errors():
        begin = time.time() - seconds(since, "--since") if since else None
        query = {"about": about or None, "name": name or None, "tenant": tenant or None}
        answer = ServiceClient().get(
            AuditAnswer, "/audit", since=begin, failed=failed, limit=limit, **query
        )
    columns: list[TableColumn[AuditEntry]] = [
        TableColumn("at", lambda row: words.moment(row.at)),
        TableColumn("who", lambda row: words.plain(row.name or row.token or "(no token)")),
        TableColumn("tenant", lambda row: row.tenant, drop=2),
        TableColumn("from", lambda row: row.address, drop=3),
        TableColumn("did", lambda row: words.plain(f"{row.method} {row.path}"), rest=True),
        TableColumn("about", lambda row: words.plain(row.about), drop=1, most=32),
        TableColumn("answer", lambda row: str(row.status), right=True),
    ]
    show_rows(answer, columns, answer.requests, "no recorded request matches", as_json=as_json)
