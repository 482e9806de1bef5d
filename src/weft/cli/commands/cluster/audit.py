"""`weft audit`: who did what."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from weft.cli.options import shared as o
from weft.cli.options.shared import seconds
from weft.cli.view.errors import user_errors
from weft.service.responses.admin import AuditAnswer, AuditEntry


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
    from weft.cli.connect.client import Client
    from weft.cli.view import words
    from weft.cli.view.tables import Column, show_rows

    with user_errors():
        begin = time.time() - seconds(since, "--since") if since else None
        query = {"about": about or None, "name": name or None, "tenant": tenant or None}
        answer = Client().get(
            AuditAnswer, "/audit", since=begin, failed=failed, limit=limit, **query
        )
    columns: list[Column[AuditEntry]] = [
        Column("at", lambda row: words.moment(row.at)),
        Column("who", lambda row: words.plain(row.name or row.token or "(no token)")),
        Column("tenant", lambda row: row.tenant, drop=2),
        Column("from", lambda row: row.address, drop=3),
        Column("did", lambda row: words.plain(f"{row.method} {row.path}"), rest=True),
        Column("about", lambda row: words.plain(row.about), drop=1, most=32),
        Column("answer", lambda row: str(row.status), right=True),
    ]
    show_rows(answer, columns, answer.requests, "no recorded request matches", as_json=as_json)
