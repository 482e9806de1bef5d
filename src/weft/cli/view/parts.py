"""Lists of parts: a row each where there is room, else what it does with the rest below."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text


def parts_table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """One column a heading, or two where `width` has no room for that."""
    wide = _table(headings)
    for row in rows:
        wide.add_row(*row)
    if len(headings) <= 2 or Console(width=10_000).measure(wide).maximum <= width:
        return wide
    narrow = _table(headings[:2])
    for name, what, *rest in rows:
        below = [Text(cell, style="dim") for cell in rest if cell]
        narrow.add_row(name, Group(Text(what), *below))
    return narrow


def _table(headings: Sequence[str]) -> Table:
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, no_wrap=i == 0)
    return table
