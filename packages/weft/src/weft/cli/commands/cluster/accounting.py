"""`weft accounting`: who used how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.service.responses.answers import Accounts, SharesOverTime, Tenant

LINES = 24  # windows that a screen shows


def accounting(
    csv: Annotated[bool, o.OUT("--csv", help="One row per job, as CSV.")] = False,
    since: Annotated[
        str, typer.Option(help="From this day on (UTC): 2026-11-01.", metavar="DAY")
    ] = "",
    until: Annotated[
        str, typer.Option(help="Before this day (UTC): 2026-12-01.", metavar="DAY")
    ] = "",
    over_time: Annotated[
        bool, typer.Option("--over-time", help="GPUs used of those entitled to, over time.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show the GPU time that each tenant used, and was entitled to.

    Counts whole days in UTC. `--csv` has a row per job, and so has `--json` for the first hundred
    jobs. `--over-time` prints one line per time window, the latest last.
    """
    from weft.cli.connect.client import ServiceClient
    from weft.cli.view.screen import console, print_json, write_bytes

    with user_errors():
        start, end = day_start("--since", since), day_start("--until", until)
        client = ServiceClient()
        if csv:
            write_bytes(client.raw("/accounting", format="csv", since=start, until=end))
            return
        if over_time:
            _show_over_time(client.get(SharesOverTime, "/accounting/shares", since=start), as_json)
            return
        accounts = client.get(Accounts, "/accounting", since=start, until=end)
    if as_json:
        print_json(accounts)
        return
    screen = console()
    screen.print(build_used_table(accounts, screen.width))
    if accounts.jain is not None and len(accounts.tenants) > 1:
        screen.print(f"Jain's index of what tenants received of it: {accounts.jain:.3f}")


def _show_over_time(shares_over_time: SharesOverTime, as_json: bool) -> None:
    from weft.cli.view.screen import console, print_json

    if as_json:
        print_json(shares_over_time)
    else:
        screen = console()
        screen.print(build_shares_table(shares_over_time, screen.width))


def build_shares_table(shares_over_time: SharesOverTime, width: int) -> Any:
    """A row per window, a column per tenant: GPUs used, and of how many."""
    from weft.cli.view import words
    from weft.cli.view.tables import TableColumn, fit_columns

    def cell(place: int) -> Callable[[int], str]:
        share = shares_over_time.tenants[place]
        return lambda row: f"{share.used_gpus[row]:.2f} of {share.entitled_gpus[row]:.2f}"

    columns: list[TableColumn[int]] = [
        TableColumn(
            "ago",
            lambda row: words.seconds(max(shares_over_time.now - shares_over_time.at[row], 0.0)),
            right=True,
        )
    ]
    columns += [
        TableColumn(share.tenant or "(none)", cell(place), drop=place, right=True)
        for place, share in enumerate(shares_over_time.tenants)
    ]
    return fit_columns(columns, range(len(shares_over_time.at))[-LINES:], width)


def build_used_table(accounts: Accounts, width: int) -> Any:
    """One row per tenant."""
    from weft.cli.view import words
    from weft.cli.view.tables import TableColumn, fit_columns
    from weft.report.units import percent

    tenants = sorted(accounts.tenants, key=lambda tenant: -tenant.gpu_seconds)
    whole = sum(tenant.gpu_seconds for tenant in tenants) or 1.0
    columns: list[TableColumn[Tenant]] = [
        TableColumn("tenant", lambda row: row.tenant or "(none)", most=32),
        TableColumn("jobs", lambda row: str(row.jobs), right=True),
        TableColumn("GPU time", lambda row: words.seconds(row.gpu_seconds), right=True),
        TableColumn("GPU hours", lambda row: f"{row.gpu_seconds / 3600:.3f}", drop=1, right=True),
        TableColumn("of all", lambda row: percent(row.gpu_seconds / whole), right=True),
        TableColumn("weight", lambda row: f"{row.weight:g}", drop=3, right=True),
        TableColumn(
            "entitled", lambda row: words.seconds(row.entitled_gpu_seconds), drop=2, right=True
        ),
        TableColumn("of it", lambda row: _part(row.received), right=True),
    ]
    return fit_columns(columns, tenants, width)


def _part(received: float | None) -> str:
    from weft.report.units import percent

    return "" if received is None else percent(received)


def day_start(option: str, text: str) -> float | None:
    """Seconds since the epoch at the beginning of a day; None where none was named."""
    from datetime import UTC, datetime

    from weft.core.errors import InvalidConfig

    if not text:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise InvalidConfig(f"{option} {text!r} is not a day", hint="such as 2026-11-01") from error
