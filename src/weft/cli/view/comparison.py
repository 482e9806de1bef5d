"""As things are, and with something different: what a what-if answers."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.cli.view import words
from weft.cli.view.tables import Column, fit_columns
from weft.report.tables import COLUMNS, write_metric
from weft.report.units import duration
from weft.service.responses.answers import Comparison, NeverStarts, Outlook, Start

AHEAD = {"avg_start_h": "mean start in", "avg_end_h": "mean end in"}


def comparison_table(answer: Comparison, width: int) -> RenderableType:
    """A column each, a row per metric; then a row per job where it looks ahead."""
    policies = answer.policies
    table = Table(header_style="bold")
    table.add_column("", no_wrap=True)
    for name in policies:
        table.add_column(name, justify="right", overflow="fold")
    for column in COLUMNS:
        values = [metrics.get(column.name) for metrics in policies.values()]
        if any(value is not None for value in values):
            shown = ("" if value is None else write_metric(column, value) for value in values)
            table.add_row(column.heading, *shown)
    for name, heading in AHEAD.items():
        values = [metrics.get(name) for metrics in policies.values()]
        if any(value is not None for value in values):
            table.add_row(heading, *("" if value is None else duration(value) for value in values))
    if answer.never:
        counts = (sum(starts.count for starts in answer.never.get(name, ())) for name in policies)
        table.add_row("never starts", *(str(count or "") for count in counts))
    parts: list[RenderableType] = [table]
    for name, some in answer.never.items():
        parts += [Text(f"{name}: {_say_never(starts)}") for starts in some]
    if answer.outlook:
        parts += [Text(), outlook_table(answer.outlook, width)]
    if answer.note:
        parts.append(Text(answer.note, style="dim"))
    return Group(*parts)


def _say_never(starts: NeverStarts) -> str:
    """`never starts (3), because over quota: ...: a, b, c`."""
    more = ", ..." if starts.count > len(starts.jobs) else ""
    return (
        f"never starts ({starts.count}), because {starts.because}: {', '.join(starts.jobs)}{more}"
    )


def outlook_table(looks: list[Outlook], width: int) -> Table:
    """When each job starts and ends, as things are and with the change."""
    columns: list[Column[Outlook]] = [
        Column("job", lambda outlook: outlook.name or outlook.id),
        Column("starts in", lambda outlook: _middle(outlook.start), right=True),
        Column("then in", lambda outlook: _middle(outlook.start_then), right=True),
        Column("ends in", lambda outlook: _middle(outlook.end), drop=1, right=True),
        Column("then in ", lambda outlook: _middle(outlook.end_then), drop=1, right=True),
    ]
    return fit_columns(columns, looks, width)


def _middle(start: Start | None) -> str:
    if start is None or start.p50 is None:
        return "?"
    return "runs" if start.p50 == 0.0 else words.seconds(start.p50)
