"""Logs of events, wherever they are: a file of lines, a service's state folder, PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, LiteralString

from weft.core.codec.event_lines import read_event
from weft.core.errors import InvalidConfig
from weft.core.events.event import Event
from weft.frozen import frozen

DATABASE = "events.db"
ADDRESSES = ("postgres://", "postgresql://")
EVENTS: Final = "SELECT seq, json FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
LAST: Final = "SELECT max(at) FROM events"
RECORDS: Final = "SELECT data FROM ended_jobs ORDER BY number"
PAGE = 2000
HINT = "give a state folder, an events.db, a file of `weft simulate --events`, or a PostgreSQL URL"


@frozen
class LogLine:
    """An event, its time, and its number in the log."""

    number: int
    at: float
    event: Event


@frozen
class UnreadableLine:
    """A line that holds no event, and why."""

    number: int
    why: str


@frozen
class EventLog:
    """All lines, in order, read again each time. `records`: ended jobs as the service has them.

    `last` is the time of the last line where that can be known without reading all of them.
    """

    where: str
    stream: Callable[[], Iterator[LogLine | UnreadableLine]]
    packed_records: tuple[bytes, ...] = ()
    last: float | None = None

    def __iter__(self) -> Iterator[LogLine | UnreadableLine]:
        return self.stream()

    @property
    def records(self) -> Iterator[dict[str, Any]]:
        """Ended jobs, as plain values."""
        return map(json.loads, self.packed_records)

    @property
    def end(self) -> float:
        if self.last is not None:
            return self.last
        return max((line.at for line in self if isinstance(line, LogLine)), default=0.0)


def read_log(where: str | Path) -> EventLog:
    """The log at a path or address; InvalidConfig for what is none."""
    if str(where).startswith(ADDRESSES):
        return _read_postgres(str(where))
    path = Path(where)
    if path.is_dir():
        path = path / DATABASE
    if not path.is_file():
        raise InvalidConfig(f"there is no log at {path}", hint=HINT)
    with path.open("rb") as file:
        database = file.read(16).startswith(b"SQLite format 3")
    return _read_sqlite(path) if database else _read_file(path)


def is_log(path: Path) -> bool:
    """Return true if a path looks like a log, and not like the result of a simulation."""
    if path.is_dir():
        return True
    with path.open("rb") as file:
        start = file.read(400)
    if start.startswith(b"SQLite format 3"):
        return True
    line = start.split(b"\n", 1)[0]
    return line.startswith(b'{"at":') and b'"event":' in line


def make_log(where: str, events: Iterable[tuple[int, float, Event]]) -> EventLog:
    """A log of events that were read already, each with its number."""
    lines = tuple(LogLine(number, at, event) for number, at, event in events)
    return EventLog(where, lambda: iter(lines))


def _read_file(path: Path) -> EventLog:
    def stream() -> Iterator[LogLine | UnreadableLine]:
        with path.open(encoding="utf-8") as file:
            yield from (_parse(n, line) for n, line in enumerate(file, 1) if line.strip())

    return _checked(EventLog(str(path), stream))


def _read_sqlite(path: Path) -> EventLog:
    def asked(query: str, values: Sequence[int] = ()) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                rows: list[tuple[Any, ...]] = db.execute(query, values).fetchall()
                return rows
        except sqlite3.Error as error:
            raise InvalidConfig(f"{path} cannot be read as a log: {error}", hint=HINT) from error

    has_records = asked("SELECT 1 FROM sqlite_master WHERE name = 'ended_jobs'")
    records = asked(RECORDS) if has_records else []
    last = asked(LAST)[0][0]
    return _in_pages(str(path), lambda after: asked(EVENTS, (after, PAGE)), records, last)


def _read_postgres(url: str) -> EventLog:
    try:
        import psycopg
    except ImportError as error:
        raise InvalidConfig(
            "a log in PostgreSQL needs psycopg", hint="pip install 'weft[postgres]'"
        ) from error

    def asked(query: LiteralString, values: Sequence[int] = ()) -> list[tuple[Any, ...]]:
        try:
            with psycopg.connect(url) as db:
                rows: list[tuple[Any, ...]] = db.execute(query, values).fetchall()
                return rows
        except psycopg.Error as error:
            raise InvalidConfig(f"the log cannot be read: {error}", hint=HINT) from error

    page = EVENTS.replace("?", "%s")
    where, records, last = url.rpartition("@")[2], asked(RECORDS), asked(LAST)[0][0]
    return _in_pages(where, lambda after: asked(page, (after, PAGE)), records, last)


def _in_pages(
    where: str,
    page: Callable[[int], list[tuple[Any, ...]]],
    records: Sequence[tuple[Any, ...]],
    last: float | None,
) -> EventLog:
    """A log that is read in parts: it may be long, and a service may write to it meanwhile.

    Records were read before, so that the log has all that they follow from.
    """

    def stream() -> Iterator[LogLine | UnreadableLine]:
        after = -1
        while rows := page(after):
            yield from (_parse(number, line) for number, line in rows)
            after = rows[-1][0]

    packed = tuple(bytes(data) for (data,) in records)
    return _checked(EventLog(where, stream, packed, last))


def _checked(log: EventLog) -> EventLog:
    if not any(isinstance(line, LogLine) for line in islice(log, PAGE)):
        raise InvalidConfig(f"{log.where} holds no event", hint=HINT)
    return log


def _parse(number: int, line: str) -> LogLine | UnreadableLine:
    try:
        return LogLine(number, *read_event(line))
    except InvalidConfig as error:
        return UnreadableLine(number, error.what)
