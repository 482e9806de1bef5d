"""`weft accounting`: who used how much."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weft.cli import options as o
from weft.cli.view.errors import user_errors
from weft.service.responses import Accounts, Tenant


def accounting(
    csv: Annotated[
        bool, typer.Option("--csv", help="A row a job, as CSV.", rich_help_panel=o.OUT)
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show the GPU time that each tenant used.

    `--csv` and `--json` have it job by job.
    """
    from weft.cli.client import Client
    from weft.cli.view.screen import console, print_json, write_bytes

    with user_errors():
        client = Client()
        if csv:
            write_bytes(client.raw("/accounting", format="csv"))
            return
        found = client.get(Accounts, "/accounting", format="json")
    if as_json:
        print_json(found)
        return
    screen = console()
    screen.print(used_table(found, screen.width))


def used_table(found: Accounts, width: int) -> Any:
    """A row a tenant."""
    from weft.cli.view import words
    from weft.cli.view.tables import Column, fitted
    from weft.report.units import percent

    tenants = sorted(found.tenants, key=lambda one: -one.gpu_seconds)
    whole = sum(tenant.gpu_seconds for tenant in tenants) or 1.0
    columns: list[Column[Tenant]] = [
        Column("tenant", lambda row: row.tenant or "(none)", most=32),
        Column("jobs", lambda row: str(row.jobs), right=True),
        Column("GPU time", lambda row: words.seconds(row.gpu_seconds), right=True),
        Column("GPU hours", lambda row: f"{row.gpu_seconds / 3600:.3f}", drop=1, right=True),
        Column("of all", lambda row: percent(row.gpu_seconds / whole), right=True),
    ]
    return fitted(columns, tenants, width)
