"""`weft state`: the service's folder, whether it is whole, and copies of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.options import shared as o
from weft.cli.options.shared import KeepDays, KeepEvents, KeepGigabytes, KeepJobs
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft_client.own_state import state_folder

state = typer.Typer(
    help="Check, back up, restore and prune what the service keeps.",
    no_args_is_help=True,
    add_completion=False,
)
Folder = Annotated[
    Path | None,
    typer.Option("--state", help="The service's folder; default: as `weft serve` chooses it."),
]
MARKS = {"ok": "green", "warning": "yellow", "error": "red"}


@state.command()
def check(folder: Folder = None, as_json: o.AsJson = False) -> None:
    """Check that log, snapshots and folders are intact; the service may keep running."""
    from weft.app.state.upkeep import check_state

    with user_errors():
        findings = check_state(folder or state_folder())
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        screen = console()
        for finding in findings:
            screen.print(f"{finding.level:>8}  ", style=MARKS[finding.level], end="")
            screen.print(finding.what, soft_wrap=True)
            if finding.do:
                screen.print(f"          {finding.do}", soft_wrap=True, style="dim")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


@state.command()
def backup(
    target: Annotated[Path, typer.Argument(help="A new folder for the copy.")],
    folder: Folder = None,
) -> None:
    """Copy log and settings to a new folder; the service may keep running."""
    from weft.app.state.upkeep import make_backup

    with user_errors():
        made = make_backup(folder or state_folder(), target)
    typer.echo(f"{target}: {len(made.files)} files, the log up to event {made.last}")


@state.command()
def restore(
    source: Annotated[Path, typer.Argument(help="What `weft state backup` made.")],
    folder: Folder = None,
) -> None:
    """Restore a backup into a folder without a log; nothing is overwritten."""
    from weft.app.state.upkeep import restore_backup

    folder = folder or state_folder()
    with user_errors():
        made, files = restore_backup(source, folder)
    typer.echo(f"{folder}: {', '.join(files)} brought back, the log up to event {made.last}")


@state.command()
def prune(
    folder: Folder = None,
    keep_days: KeepDays = 90.0,
    keep_jobs: KeepJobs = 100_000,
    keep_gb: KeepGigabytes = 0.0,
    keep_events: KeepEvents = 5_000_000,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show what would be removed; the service may keep running."
        ),
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Remove ended jobs with their output, and old events; a running service does this itself."""
    from weft.app.state.upkeep import find_prunable
    from weft.app.state.upkeep import prune as remove
    from weft.runtime.recovery.retention import Keep

    folder = folder or state_folder()
    with user_errors():
        limits = Keep(keep_days, keep_jobs, keep_gb, keep_events)
        pruned = find_prunable(folder, limits) if dry_run else remove(folder, limits)
    if as_json:
        print_json({**asdict(pruned), "dry_run": dry_run})
        return
    word = "would go" if dry_run else "are gone"
    typer.echo(
        f"{len(pruned.jobs)} ended jobs with {pruned.bytes / 1e9:.3f} GB "
        f"and {pruned.events} events {word}; {pruned.kept} jobs stay"
    )


@state.command("accept-loss")
def accept_loss(folder: Folder = None) -> None:
    """Continue without the events missing from the log; what they recorded is lost for good."""
    from weft.app.state.upkeep import accept_loss as accept

    with user_errors():
        lost = accept(folder or state_folder())
    typer.echo(f"{len(lost)} events are missing for good" if lost else "no event is missing")


@state.command()
def downgrade(
    to: Annotated[str, typer.Option("--to", help="The version of weft to go back to.")],
    folder: Folder = None,
    database: Annotated[
        str,
        typer.Option(help="The log is in this PostgreSQL database.", metavar="postgresql://..."),
    ] = "",
) -> None:
    """Give the log the format of an earlier version, so that it can serve; nothing is lost."""
    from weft.app.state.upkeep import downgrade_log

    folder = folder or state_folder()
    with user_errors():
        version, lacks = downgrade_log(folder, database, to)
    typer.echo(f"weft {version} can go on with {database or folder}")
    for what, count in lacks.items():
        typer.echo(f"  left out until you upgrade again: {what} ({count})")
