"""The event log in tables of a database: what all databases do alike.

Rows that cannot be read are moved to `set_aside`, with the reason, and the rest is read. Every
transaction checks the token of its owner's lease.
"""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from weft.core.codec.event_lines import read_event, readable_line
from weft.core.codec.log_schema import FORMAT
from weft.core.errors import InvalidConfig, MaybeWritten, NewerEvent, StoreError, WeftError
from weft.core.events.event import Event, names
from weft.core.latency import Latency
from weft.core.model.job import JobId
from weft.frozen import frozen
from weft.store.ended_jobs import EndedTable, LogOwner, SqlReader
from weft.store.other_formats import UNREADABLE, downgrade, upgrade

log = logging.getLogger(__name__)

SNAPSHOTS_KEPT = 2
NO_LIMIT = 2**63 - 1
# The log has its beginning, or goes on from its oldest base.
BEGINS_AFTER = """
SELECT CASE WHEN coalesce((SELECT min(seq) FROM events), 1) = 1 THEN 0
ELSE coalesce((SELECT min(seq) FROM bases), 0) END
"""
KEEP_SNAPSHOT = """
INSERT INTO snapshots VALUES (?, ?) ON CONFLICT (seq) DO UPDATE SET data = excluded.data
"""
DROP_SNAPSHOTS = """
DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)
"""
KEEP_BASE = """
INSERT INTO bases VALUES (?, ?, ?)
ON CONFLICT (seq) DO UPDATE SET at = excluded.at, data = excluded.data
"""
SET_ASIDE = """
INSERT INTO set_aside SELECT seq, json, ? FROM events WHERE seq = ?
ON CONFLICT (seq) DO UPDATE SET json = excluded.json, why = excluded.why
"""
GO_BACK = (
    "nothing was changed: start the newer version again, or let it run "
    f"`weft state downgrade --to {FORMAT}` first"
)
CUT_AT_ONCE = 2_000  # events: appending meanwhile waits some 20 ms
Row = tuple[int, float, Event]
DECISIONS_SEARCHED = 100_000  # events back from the last
# Of an event's text: what it is, and the job that it is about.
KIND = "CASE WHEN json_valid(json) THEN json_extract(json, '$.event') END"
JOB = (
    "CASE WHEN json_valid(json) THEN"
    " coalesce(json_extract(json, '$.job.id'), json_extract(json, '$.job')) END"
)
INDEXES = f"""
CREATE INDEX IF NOT EXISTS events_of_job ON events ({JOB}) WHERE {KIND} <> 'Decided';
CREATE INDEX IF NOT EXISTS decisions ON events (seq) WHERE {KIND} = 'Decided';
CREATE INDEX IF NOT EXISTS events_at ON events (at);
"""


class SqlLog(ABC):
    """A log whose tables are there; `where` names it for people.

    A subclass opens the connection, numbers and inserts events, and begins transactions.
    """

    failures: tuple[type[Exception], ...] = ()
    search: Search
    where: str
    ended: EndedTable
    _db: LogOwner
    _reading: SqlReader

    def __init__(self) -> None:
        self.appends = Latency()
        self._lock = threading.Lock()

    # ---- for a subclass

    @abstractmethod
    def _insert(self, lines: Sequence[tuple[float, str]]) -> int:
        """Inside a transaction: the number of the last."""

    @abstractmethod
    def _last(self) -> int:
        """The number of the last event that was ever appended."""

    @abstractmethod
    def _put_line(self, seq: int, line: str) -> None:
        """Inside a transaction: make this the line of an event."""

    @abstractmethod
    def _set_format(self, number: int) -> None:
        """Inside a transaction: note the format that the log has from now on."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the log, so that another process may own it."""

    @abstractmethod
    def _begin(self) -> None:
        """A transaction of the holder of the token; Superseded for others."""

    @abstractmethod
    def _roll_back(self) -> None:
        """The transaction that was begun, if any is left."""

    # ---- the log

    def append(self, events: Sequence[tuple[float, Event]]) -> int:
        """Keep them in one transaction; the number of the last."""
        lines = [(at, readable_line(at, event)) for at, event in events]
        with self.appends.measured(), self._all_or_nothing(f"{len(lines)} events"):
            return self._insert(lines)

    def since(self, seq: int, limit: int | None = None) -> list[Row]:
        """Events after number `seq`; those that cannot be read are set aside and skipped."""
        with self._lock:
            rows = self._db.execute(
                "SELECT seq, json FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                (seq, NO_LIMIT if limit is None else limit),
            ).fetchall()
        readable = [*self._readable(rows)]
        # A reader takes an empty answer for the end.
        return readable if readable or not rows else self.since(rows[-1][0], limit)

    def last_seq(self) -> int:
        with self._lock:
            return self._last()

    def set_aside(self, seq: int, why: str) -> None:
        log.error("event=%d set aside: %s", seq, why)
        with self._all_or_nothing(f"event {seq}"):
            self._db.execute(SET_ASIDE, (why, seq))
            empty = "INSERT INTO set_aside VALUES (?, '', ?) ON CONFLICT DO NOTHING"
            self._db.execute(empty, (seq, why))
            self._db.execute("DELETE FROM events WHERE seq = ?", (seq,))

    def unreadable_rows(self) -> dict[int, str]:
        with self._lock:
            return dict(self._db.execute("SELECT seq, why FROM set_aside ORDER BY seq").fetchall())

    def missing(self) -> list[int]:
        """Numbers that the log should have and does not, without those that were set aside."""
        with self._lock:
            (base,) = self._db.execute(BEGINS_AFTER).fetchone()
            there = {seq for (seq,) in self._db.execute("SELECT seq FROM events")}
            there |= {seq for (seq,) in self._db.execute("SELECT seq FROM set_aside")}
            return [seq for seq in range(base + 1, self._last() + 1) if seq not in there]

    def about_job(
        self, job: JobId, limit: int, until: float | None = None, without: Collection[type] = ()
    ) -> list[Row]:
        """The last events that name a job, by a connection of its own: appends go on."""
        rows = lines_about(self._reading.query, self.search, job, limit, until, without)
        return [row for row in self._readable(rows) if names(row[2], job)]

    def _readable(self, rows: Iterable[tuple[int, str]]) -> Iterator[Row]:
        for seq, line in rows:
            try:
                yield (seq, *read_event(line))
            except NewerEvent as error:
                raise InvalidConfig(
                    f"event {seq} of {self.where} is of a newer version of weft: {error.what}",
                    hint=GO_BACK,
                ) from error
            except WeftError as error:
                self.set_aside(seq, f"{UNREADABLE}: {error.what}")

    # ---- formats

    def _refuse_newer(self, written: int) -> None:
        """Raise InvalidConfig for a log of a newer format than ours."""
        if written > FORMAT:
            raise InvalidConfig(
                f"{self.where} was written by a newer version of weft: it has log format "
                f"{written}, and this version reads up to {FORMAT}",
                hint=GO_BACK,
            )

    def _bring_up(self, written: int) -> None:
        """Give a log of the format `written` ours; 0 is a new one."""
        with self._all_or_nothing(f"log format {FORMAT}"):
            if 0 < written < FORMAT:
                upgrade(self._db, self._put_line)
            self._set_format(FORMAT)

    def downgrade(self, log_format: int) -> Counter[str]:
        """Give the log an earlier format; how often it lacks each thing that this cannot hold.

        Nothing is lost: an upgrade puts the lines back as they were.
        """
        with self._all_or_nothing(f"log format {log_format}"):
            (base,) = self._db.execute(BEGINS_AFTER).fetchone()
            if base:
                raise InvalidConfig(
                    f"{self.where} begins after event {base}, from a state of this version",
                    hint="only a log with its beginning has an earlier format; bring back a "
                    "backup from before the upgrade with `weft state restore`",
                )
            lacks = downgrade(self._db, self._put_line, log_format)
            self._set_format(log_format)
        return lacks

    # ---- snapshots

    def save(self, seq: int, snapshot: bytes) -> None:
        """Keep a snapshot beside the one before it."""
        with self._all_or_nothing("a snapshot"):
            self._db.execute(KEEP_SNAPSHOT, (seq, snapshot))
            self._db.execute(DROP_SNAPSHOTS, (SNAPSHOTS_KEPT,))

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The snapshot with the highest number."""
        with self._lock:
            row = self._db.execute(
                "SELECT seq, data FROM snapshots ORDER BY seq DESC LIMIT 1"
            ).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    def keep_base(self, seq: int, at: float, base: bytes) -> None:
        with self._all_or_nothing("a base"):
            self._db.execute(KEEP_BASE, (seq, at, base))

    def list_bases(self) -> list[tuple[int, float]]:
        with self._lock:
            return [*self._db.execute("SELECT seq, at FROM bases ORDER BY seq").fetchall()]

    def latest_base(self) -> tuple[int, bytes] | None:
        """Return the state that the log continues from; None if it has its beginning."""
        with self._lock:
            (seq,) = self._db.execute(BEGINS_AFTER).fetchone()
            row = self._db.execute("SELECT seq, data FROM bases WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    def compact(self, seq: int) -> None:
        """Drop all events up to `seq`, a few at a time; where it stops the log can be read."""
        if seq not in {base for base, _ in self.list_bases()}:
            raise InvalidConfig(f"there is no base of event {seq} to cut the log at")
        with self._all_or_nothing("the cut"):
            self._db.execute("DELETE FROM bases WHERE seq < ?", (seq,))
            self._db.execute("DELETE FROM set_aside WHERE seq <= ?", (seq,))
        while True:
            with self._all_or_nothing("the cut"):
                (first,) = self._db.execute("SELECT min(seq) FROM events").fetchone()
                if first is None or first > seq:
                    return
                until = min(first + CUT_AT_ONCE, seq + 1)
                self._db.execute("DELETE FROM events WHERE seq < ?", (until,))

    @contextmanager
    def _all_or_nothing(self, what: str) -> Iterator[None]:
        """A transaction; StoreError if it cannot be kept, MaybeWritten if that is not known."""
        ends = False
        with self._lock:
            try:
                self._begin()
                yield
                ends = True
                self._db.execute("COMMIT")
            except self.failures as error:
                self._roll_back()
                raise StoreError(
                    f"{what} could not be written to {self.where}: {error}",
                    hint="free space in the service's --state folder, then ask again",
                ) from error
            except StoreError as error:  # the database has gone
                self._roll_back()
                if not ends:
                    raise
                raise MaybeWritten(error.what, hint=error.hint) from error
            except BaseException:
                self._roll_back()
                raise


# ---- Events of one job by indexes of the log, without reading those of all others


@frozen
class Search:
    """Words for a database in which `kind` and `job` are of an event, and `find` looks in texts."""

    kind: str
    job: str
    find: str

    def of_job(self, without: Collection[type] = ()) -> str:
        """The last events about a job itself, but those of some kinds."""
        kinds = "".join(f" AND {self.kind} <> '{kind.__name__}'" for kind in without)
        return f"""
SELECT seq, json FROM events WHERE {self.kind} <> 'Decided'{kinds} AND {self.job} = :job
ORDER BY seq DESC LIMIT :limit
"""  # noqa: S608 - our own words

    @property
    def decisions(self) -> str:
        """Decisions in which its name stands."""
        return f"""
SELECT seq, json FROM events WHERE {self.kind} = 'Decided' AND seq > :first AND seq <= :last
AND {self.find}(json, :text) > 0 ORDER BY seq DESC LIMIT :limit
"""  # noqa: S608


IN_SQLITE = Search(KIND, JOB, "instr")
NEWEST = "SELECT coalesce(max(seq), 0) FROM events WHERE at <= ?"


def lines_about(
    ask: Callable[..., list[Any]],
    search: Search,
    job: JobId,
    limit: int,
    until: float | None,
    without: Collection[type],
) -> list[tuple[int, str]]:
    """The last lines that may be about a job, oldest first; appending never waits for it."""
    values = {"job": job, "limit": limit, "text": json.dumps(job)}
    rows = ask(search.of_job(without), values)
    ((last,),) = ask(NEWEST, (inf if until is None else until,))
    first = max(rows[-1][0] if rows else 0, last - DECISIONS_SEARCHED)
    rows += ask(search.decisions, {**values, "first": first, "last": last})
    return sorted(rows)[-limit:]
