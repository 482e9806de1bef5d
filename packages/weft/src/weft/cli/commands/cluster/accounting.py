"""`weft accounting`: who used how much."""

from __future__ import annotations

import sys
from collections.abc import Callable
from csv import DictReader, writer
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from weft.cli.connect.client import ServiceClient
from weft.cli.options import shared as o
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json, write_bytes
from weft.cli.view.tables import TableColumn, fit_columns
from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft.report.units import percent
from weft.service.responses.answers import Accounts, SharesOverTime, Tenant

LINES = 24  # windows that a screen shows
GROUPS = {
    "project": "tenant",
    "tenant": "tenant",
    "user": "user",
    "kind": "kinds",
    "name": "name",
    "state": "state",
}
WASTED = ("failed", "idle", "restarted")


def accounting(
    csv: Annotated[
        bool, o.OUT("--csv", help="One row per job, or per group of --by, as CSV.")
    ] = False,
    since: Annotated[
        str, typer.Option(help="From this day on (UTC): 2026-11-01, or 30d ago.", metavar="DAY")
    ] = "",
    until: Annotated[
        str, typer.Option(help="Before this day (UTC): 2026-12-01.", metavar="DAY")
    ] = "",
    month: Annotated[
        str, typer.Option(help="One month (UTC): 2026-11, or `this` and `last`.", metavar="MONTH")
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            help=f"Jobs that were submitted then, grouped: {', '.join(GROUPS)}; joined by commas."
        ),
    ] = "",
    over_time: Annotated[
        bool, typer.Option("--over-time", help="GPUs used of those entitled to, over time.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show the GPU time that each tenant used, and was entitled to.

    Counts whole days in UTC. `--csv` has a row per job, and so has `--json` for the first hundred
    jobs. `--over-time` prints one line per time window, the latest last. With `--by`, wasted is the
    GPU time of jobs that failed, and of others while they held GPUs and did not use them, or whose
    work a restart lost. A job that ran on several kinds of GPU is in the group of each, with the
    GPU time that it had there.
    """
    with user_errors():
        start, end = period(since, until, month)
        client = ServiceClient()
        if by:
            rows = client.raw("/accounting", format="csv", since=start, until=end)
            _show_groups(group_jobs(rows.decode(), by), csv=csv, as_json=as_json)
            return
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
    if not accounts.tenants:
        screen.print("no job was there in that time")
        return
    screen.print(build_used_table(accounts, screen.width))
    if accounts.jain is not None and len(accounts.tenants) > 1:
        screen.print(f"Jain's index of what tenants received of it: {accounts.jain:.3f}")


@frozen
class UsedGroup:
    """The usage of jobs that are alike in what they are grouped by."""

    group: tuple[str, ...]
    jobs: int
    gpu_seconds: float
    restarts: int
    wasted: tuple[float, ...] = (0.0,) * len(WASTED)

    @property
    def measures(self) -> dict[str, float]:
        """All but its name, as a table has it."""
        parts = {f"{what}_gpu_seconds": s for what, s in zip(WASTED, self.wasted, strict=True)}
        counts = {"jobs": self.jobs, "gpu_seconds": self.gpu_seconds, "restarts": self.restarts}
        return {**counts, "wasted_gpu_seconds": sum(self.wasted), **parts}


def group_jobs(rows: str, by: str) -> tuple[list[str], list[UsedGroup]]:
    """The names of groups, and the groups of jobs in CSV, the largest first."""
    names = [name.strip() for name in by.split(",")]
    if unknown := [name for name in names if name not in GROUPS]:
        raise InvalidConfig(f"--by {unknown[0]!r} is no group", hint=f"any of {', '.join(GROUPS)}")
    groups: dict[tuple[str, ...], UsedGroup] = {}
    for job in DictReader(rows.splitlines()):
        for kind, part in _parts(job).items() if "kind" in names else [("", 1.0)]:
            named = tuple(kind if name == "kind" else job[GROUPS[name]] for name in names)
            was = groups.get(named, UsedGroup(named, 0, 0.0, 0))
            groups[named] = UsedGroup(
                named,
                was.jobs + 1,
                was.gpu_seconds + part * float(job["gpu_seconds"]),
                was.restarts + int(job["restarts"]),
                tuple(
                    before + part * float(job.get(f"{what}_gpu_seconds") or 0.0)
                    for what, before in zip(WASTED, was.wasted, strict=True)
                ),
            )
    return names, sorted(groups.values(), key=lambda group: (-group.gpu_seconds, group.group))


def _parts(job: dict[str, str]) -> dict[str, float]:
    """The parts of a job's GPU time by kind of GPU; one without a name is not known."""
    used = float(job["gpu_seconds"])
    cells = [cell.rpartition(":") for cell in filter(None, (job.get("kinds") or "").split(";"))]
    known = {kind: float(had) / used for kind, _, had in cells if used}
    rest = 1.0 - sum(known.values())
    return known if known and rest < 1e-6 else {**known, "": rest}


def _show_groups(grouped: tuple[list[str], list[UsedGroup]], *, csv: bool, as_json: bool) -> None:
    names, groups = grouped
    header = [*names, *UsedGroup((), 0, 0.0, 0).measures]
    rows = [(*group.group, *group.measures.values()) for group in groups]
    if as_json:
        print_json({"groups": [dict(zip(header, row, strict=True)) for row in rows]})
    elif csv:
        out = writer(sys.stdout, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)
    elif not rows:
        console().print("no job was submitted in that time")
    else:
        columns: list[TableColumn[UsedGroup]] = [
            TableColumn(name, lambda row, place=place: row.group[place] or "(none)", most=32)  # type: ignore[misc]
            for place, name in enumerate(names)
        ]
        columns += [
            TableColumn("jobs", lambda row: str(row.jobs), right=True),
            TableColumn("GPU time", lambda row: words.seconds(row.gpu_seconds), right=True),
            TableColumn("restarts", lambda row: str(row.restarts), right=True),
            TableColumn("wasted", lambda row: words.seconds(sum(row.wasted)), right=True),
        ]
        columns += [
            TableColumn(
                what,
                lambda row, place=place: words.seconds(row.wasted[place]),  # type: ignore[misc]
                drop=1,
                right=True,
            )
            for place, what in enumerate(WASTED)
        ]
        screen = console()
        screen.print(fit_columns(columns, groups, screen.width))


def period(since: str, until: str, month: str) -> tuple[float | None, float | None]:
    """The beginning and the end that options name, None for what none does."""
    if not month:
        return day_start("--since", since), day_start("--until", until)
    if since or until:
        raise InvalidConfig(
            "--month and --since or --until are both given", hint="give one of them"
        )
    now = datetime.now(UTC)
    months = {"this": now.year * 12 + now.month - 1, "last": now.year * 12 + now.month - 2}
    if month not in months:
        try:
            read = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
        except ValueError as error:
            raise InvalidConfig(
                f"--month {month!r} is not a month", hint="such as 2026-11, this or last"
            ) from error
        months[month] = read.year * 12 + read.month - 1
    ends = (divmod(months[month] + after, 12) for after in (0, 1))
    start, end = (datetime(year, first + 1, 1, tzinfo=UTC).timestamp() for year, first in ends)
    return start, end


def _show_over_time(shares_over_time: SharesOverTime, as_json: bool) -> None:
    if as_json:
        print_json(shares_over_time)
    else:
        screen = console()
        screen.print(build_shares_table(shares_over_time, screen.width))


def build_shares_table(shares_over_time: SharesOverTime, width: int) -> Any:
    """A row per window, a column per tenant: GPUs used, and of how many."""

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
    """Build the table of used GPU time, one row per tenant."""
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
    return "" if received is None else percent(received)


def day_start(option: str, text: str) -> float | None:
    """Seconds since the epoch at the beginning of a day; None where none was named."""
    if not text:
        return None
    if text[:-1].isdecimal() and text[-1] == "d" and len(text) < 7:
        day = datetime.now(UTC) - timedelta(days=int(text[:-1]))
        return day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise InvalidConfig(
            f"{option} {text!r} is not a day", hint="such as 2026-11-01, or 30d"
        ) from error
