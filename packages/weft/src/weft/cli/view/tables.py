"""Tables that fit the terminal: what matters less goes first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.cli.connect.client import ServiceClient
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, is_piped, print_json
from weft.frozen import frozen

Row = TypeVar("Row")
Answer = TypeVar("Answer")

MOST_NAME = 18
LEAST_REST = 26
GAP = 2


@frozen
class TableColumn(Generic[Row]):
    """A heading, how a row is written, and how early it is left out (0: never).

    `rest` takes the width that is left, after columns that matter less than it have gone, and goes
    on in the next line where that is too little: it is never cut.
    """

    heading: str
    write: Callable[[Row], str | Text]
    drop: int = 0
    right: bool = False
    most: int = 0
    rest: bool = False


def fit_columns(columns: Sequence[TableColumn[Row]], rows: Iterable[Row], width: int) -> Table:
    """The rows with as many columns as `width` has room for; empty columns are left out."""
    held = [[as_text(column, row) for column in columns] for row in rows]
    shown = [
        i for i, c in enumerate(columns) if c.drop == 0 or not held or any(r[i].plain for r in held)
    ]
    firm = [i for i in shown if not columns[i].rest]
    rest = next((columns[i].drop for i in shown if columns[i].rest), 0)
    longest = max((len(row[i]) for row in held for i in shown if columns[i].rest), default=0)
    while firm:
        first = max(firm, key=lambda i: columns[i].drop)
        wanted = min(max(longest, 1), LEAST_REST) + GAP
        reserved = wanted if 0 < rest < columns[first].drop else 0
        if columns[first].drop == 0 or _width(columns, held, firm) + reserved <= width:
            break
        firm.remove(first)
        shown.remove(first)
    left = width - _width(columns, held, firm) - GAP
    shown = [i for i in shown if i in firm or left >= min(longest, LEAST_REST)]
    return _table(columns, held, shown, left)


def show_rows(
    answer: Any,
    columns: Sequence[TableColumn[Row]],
    rows: Sequence[Row],
    none: str,
    *,
    as_json: bool,
) -> None:
    """Print the answer for machines, or its rows for a person: `none` where there are none."""
    screen = console()
    if as_json:
        print_json(answer)
    elif not rows:
        screen.print(none, style="dim")
    else:
        screen.print(fit_columns(columns, rows, screen.width))


def list_at(
    path: str,
    answer: type[Answer],
    rows: Callable[[Answer], Sequence[Row]],
    columns: Sequence[TableColumn[Row]],
    none: str,
    *,
    as_json: bool,
) -> None:
    """Ask the service for a list, and print it as `show_rows` does."""
    with user_errors():
        reply = ServiceClient().get(answer, path)
    show_rows(reply, columns, rows(reply), none, as_json=as_json)


def as_text(column: TableColumn[Row], row: Row) -> Text:
    """A cell; long ones are cut, but not for programs."""
    written = column.write(row)
    text = written if isinstance(written, Text) else Text(words.plain(written))
    if column.most and len(text) > column.most and not is_piped():
        text.truncate(column.most, overflow="ellipsis")
    return text


def details(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values below each other; those without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", []):
            table.add_row(name, value if isinstance(value, Text) else Text(words.plain(value)))
    return table


def _table(
    columns: Sequence[TableColumn[Any]], held: list[list[Text]], shown: Sequence[int], left: int = 0
) -> Table:
    looked_at = sys.stdout.isatty()  # programs get no rules
    table = Table(
        box=box.SIMPLE_HEAD if looked_at else None,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
        padding=(0, GAP - looked_at, 0, 0),
    )
    for i in shown:
        column = columns[i]
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=not column.rest,
            overflow="fold" if column.rest else "ellipsis",
            max_width=left if column.rest else None,
        )
    for row in held:
        table.add_row(*(row[i] for i in shown))
    return table


def _width(
    columns: Sequence[TableColumn[Any]], held: list[list[Text]], shown: Sequence[int]
) -> int:
    return Console(width=10_000).measure(_table(columns, held, shown)).maximum
