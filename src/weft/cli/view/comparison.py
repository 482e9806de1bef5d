"""Two policies side by side, from a what-if."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.report.tables import COLUMNS, write_metric
from weft.service.responses import Comparison


def comparison_table(answer: Comparison) -> RenderableType:
    """A column a policy, a row a metric."""
    policies = answer.policies
    table = Table(header_style="bold")
    table.add_column("", no_wrap=True)
    for name in policies:
        table.add_column(name, justify="right", overflow="fold")
    for column in COLUMNS:
        values = [found.get(column.name) for found in policies.values()]
        if any(value is not None for value in values):
            shown = ("" if one is None else write_metric(column, one) for one in values)
            table.add_row(column.heading, *shown)
    parts: list[RenderableType] = [table]
    if answer.note:
        parts.append(Text(answer.note, style="dim"))
    return Group(*parts)
