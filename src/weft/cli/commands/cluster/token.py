"""`weft token`: who may talk to the service."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from weft.cli.options import shared as o
from weft.cli.options.shared import seconds
from weft.cli.view.errors import user_errors
from weft.service.responses.admin import NewToken, TokenAnswer, TokenList

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
    from weft.cli.connect.client import Client

    with user_errors():
        lasts = {"expires_s": seconds(expires, "--expires")} if expires else {}
        fields = {"tenant": tenant, "role": role, "name": name, "account": account}
        made = Client().post(
            NewToken,
            "/tokens",
            {**lasts, **{field: text for field, text in fields.items() if text}},
        )
    show_secret(made, quiet=quiet, as_json=as_json)


def show_secret(made: NewToken, *, quiet: bool, as_json: bool) -> None:
    """A new token, the only time that it can be shown."""
    from weft.cli.view.screen import console, print_json

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
    from weft.cli.connect.client import Client, at

    with user_errors():
        body = {"overlap_s": seconds(overlap, "--overlap")}
        made = Client().post(NewToken, at("tokens", token, "rotate"), body)
    show_secret(made, quiet=quiet, as_json=as_json)


@token.command("list")
def list_tokens(as_json: o.AsJson = False) -> None:
    """List tokens, without their secret part."""
    from weft.cli.view import words
    from weft.cli.view.tables import Column, list_at

    columns: list[Column[TokenAnswer]] = [
        Column("id", lambda row: row.id),
        Column("role", lambda row: row.role),
        Column("tenant", lambda row: row.tenant),
        Column("name", lambda row: row.name, drop=1, most=24),
        Column("created", lambda row: words.moment(row.created), drop=2),
        Column("expires", expiry, drop=1),
    ]
    none = "no tokens: everyone on this machine is an admin"
    list_at("/tokens", TokenList, lambda reply: reply.tokens, columns, none, as_json=as_json)


def expiry(row: TokenAnswer) -> str:
    """When a token expires, or that it has."""
    from weft.cli.view import words

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
    from weft.cli.connect.client import Client, at
    from weft.cli.view.screen import console, print_json

    with user_errors():
        client = Client()
        for each in ids:
            client.delete(at(what, each))
    if as_json:
        print_json({done: ids})
    else:
        console().print(f"{done} {', '.join(ids)}")
