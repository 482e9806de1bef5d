"""Rows of a delimited file, with errors that name line and column."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf, nan

from weft.core.errors import TraceError
from weft.traces.source import TraceFile, reading

MISSING = frozenset({"", "none", "na", "nan", "null", "nat"})
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - traces give naive local times


class TraceTable:
    """A delimited file, read row by row; `names` stands in for a header line that is not there."""

    def __init__(
        self, member: TraceFile, *, names: Sequence[str] | None = None, delimiter: str = ","
    ) -> None:
        self.path = member.path
        self.rows = 0
        self._stream = member.text()
        self._reader = csv.reader(
            self._stream,
            delimiter=delimiter,
            quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
        )
        try:
            self.columns = list(names) if names is not None else self._header()
        except TraceError:
            self._stream.close()
            raise
        self._index = {name: i for i, name in enumerate(self.columns)}

    @property
    def line(self) -> int:
        """The line last read, counted from 1."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[list[str]]:
        width = len(self.columns)
        with self._stream, reading(self.path, lambda: self.line):
            for row in self._reader:
                if len(row) != width:
                    if not row:
                        continue
                    raise self._ragged(row, width)
                self.rows += 1
                yield row

    def index(self, *names: str) -> int:
        """Return the position of the first of `names` that is a column."""
        for name in names:
            if name in self._index:
                return self._index[name]
        self._stream.close()
        raise TraceError.at(
            self.path,
            1,
            names[0],
            ",".join(self.columns)[:80],
            f"a column named {' or '.join(names)}",
            hint="the header line lacks a column this format needs",
        )

    def maybe(self, *names: str) -> int:
        """Return the position of a column, or -1."""
        return next((self._index[name] for name in names if name in self._index), -1)

    def text(self, row: list[str], column: int) -> str:
        """The cell, or an empty string when missing."""
        if column < 0:
            return ""
        cell = row[column].strip()
        return "" if cell.lower() in MISSING else cell

    def number(self, row: list[str], column: int) -> float:
        """The cell as a number, `nan` when missing."""
        if column < 0:
            return nan
        cell = row[column]
        try:
            value = float(cell)
        except ValueError:
            if cell.strip().lower() in MISSING:
                return nan
            raise self.wrong(row, column, "a number") from None
        if value in (inf, -inf):
            raise self.wrong(row, column, "a finite number")
        return value

    def optional(self, row: list[str], column: int) -> float | None:
        """The cell as a number, None when missing."""
        value = self.number(row, column)
        return None if value != value else value

    def count(self, row: list[str], column: int) -> float:
        """The cell as a number of things, 0 when missing."""
        value = self.number(row, column)
        if value != value:
            return 0.0
        if value < 0:
            raise self.wrong(row, column, "0 or more")
        return value

    def moment(self, row: list[str], column: int) -> float:
        """The cell, a date and time, as seconds since 1970 without zone; `nan` when missing."""
        cell = self.text(row, column)
        if not cell:
            return nan
        try:
            return seconds(cell)
        except ValueError:
            raise self.wrong(row, column, "a time such as 2020-04-01 12:30:00") from None

    def wrong(self, row: list[str], column: int, expected: str, hint: str = "") -> TraceError:
        """The error to raise about one cell."""
        return TraceError.at(
            self.path,
            self.line,
            self.columns[column],
            row[column],
            expected,
            hint=hint or "fix or remove the line, or check that the columns are in order",
        )

    def _header(self) -> list[str]:
        with reading(self.path):
            for row in self._reader:
                if row:
                    return [name.strip() for name in row]
        raise TraceError(f"{self.path}: the file is empty", hint="a trace has at least one job")

    def _ragged(self, row: list[str], width: int) -> TraceError:
        return TraceError.at(
            self.path,
            self.line,
            self.columns[min(len(row), width - 1)],
            f"{len(row)} columns",
            f"{width}",
            hint="the line is cut short or has a stray separator; is the file complete?",
        )


def seconds(text: str) -> float:
    """A date and time as seconds since 1970; a zone, where given, is taken out."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is not None:
        when = when.astimezone(UTC).replace(tzinfo=None)
    return (when - EPOCH).total_seconds()


def first_day(moments: Iterable[float]) -> float:
    """The midnight before the first of `moments`; missing ones do not count."""
    first = min((m for m in moments if m == m), default=0.0)
    return first - first % 86_400.0


def date_of(moment: float) -> datetime:
    """Seconds since 1970 as an aware date; the zone is nominal."""
    return datetime.fromtimestamp(moment, UTC)
