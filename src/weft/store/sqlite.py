"""The event log in one SQLite file: `events(seq, at, json)`, appended to and never changed.

Write-ahead logging with a full sync at each commit: what `append` returned for survives
`kill -9` and a power cut. One process at a time owns the file; a second one is refused, and every
transaction checks the token of its lease. Rows that cannot be read are moved to `set_aside`, with
the reason, and the rest is read.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from weft.core.codec.event_lines import read_event, readable_line
from weft.core.errors import InvalidConfig, StoreError, Superseded, WeftError
from weft.core.events.event import Event, names
from weft.core.latency import Latency
from weft.core.model.job import JobId
from weft.store import lease
from weft.store.ended_jobs import TABLE, SqliteEnded
from weft.store.job_events import INDEXES, lines_about
from weft.store.reading import Reading

log = logging.getLogger(__name__)

VERSION = 4
SNAPSHOTS_KEPT = 2
HELP = "`weft state check` says what is left; `weft state restore` brings a backup back"
_TABLES = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, json TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS snapshots (seq INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS bases (
    seq INTEGER PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS set_aside (
    seq INTEGER PRIMARY KEY, json TEXT NOT NULL, why TEXT NOT NULL) STRICT;
"""
# The log has its beginning, or goes on from its oldest base.
BEGINS_AFTER = """
SELECT CASE WHEN coalesce((SELECT min(seq) FROM events), 1) = 1 THEN 0
ELSE coalesce((SELECT min(seq) FROM bases), 0) END
"""
CUT_AT_ONCE = 2_000  # events: who appends meanwhile waits some 20 ms
Row = tuple[int, float, Event]


class SqliteStore:
    """The log in the file `path`; its folder must be there. `holder` is for a standby to read."""

    def __init__(self, path: Path | str, holder: str = "") -> None:
        self.path = Path(path)
        self.appends = Latency()
        self._lock = threading.Lock()
        self._owned = own(self.path)
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            self.path.chmod(0o600)  # jobs' variables are in the log
            self._open()
            self._token = lease.take(self._db, holder)
            self._reading = Reading(self.path, self._db, self._lock)
            self.ended = SqliteEnded(self._reading, self._db, self._all_or_nothing)
        except (sqlite3.DatabaseError, OSError) as error:
            os.close(self._owned)
            raise InvalidConfig(
                f"{self.path} cannot be read as an event log: {error}", hint=HELP
            ) from error

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise InvalidConfig(
                f"{self.path} was written by a newer version of weft (log format {version})",
                hint=f"this one reads up to format {VERSION}",
            )
        if version == 2:  # had no bases yet, and no time in them
            self._db.execute("DROP TABLE IF EXISTS bases")
        self._db.executescript(_TABLES + TABLE + INDEXES + lease.TABLE)
        self._db.execute(f"PRAGMA user_version={VERSION}")

    # ---- the log

    def append(self, events: Sequence[tuple[float, Event]]) -> int:
        """Keep them in one transaction; the number of the last."""
        rows = [(at, readable_line(at, event)) for at, event in events]
        with self.appends.measured(), self._all_or_nothing(f"{len(rows)} events"):
            self._db.executemany("INSERT INTO events (at, json) VALUES (?, ?)", rows)
            return self._last()

    def since(self, seq: int, limit: int | None = None) -> list[Row]:
        """Events after number `seq`; those that cannot be read are set aside and passed over."""
        with self._lock:
            rows = self._db.execute(
                "SELECT seq, json FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                (seq, -1 if limit is None else limit),
            ).fetchall()
        readable = [*self._readable(rows)]
        # A reader takes an empty answer for the end.
        return readable if readable or not rows else self.since(rows[-1][0], limit)

    def last(self) -> int:
        """The number of the last event that was ever appended."""
        with self._lock:
            return self._last()

    def set_aside(self, seq: int, why: str) -> None:
        """Take a row out of the log, and keep it with the reason."""
        log.error("event=%d set aside: %s", seq, why)
        with self._all_or_nothing(f"event {seq}"):
            self._db.execute(
                "INSERT OR REPLACE INTO set_aside SELECT seq, json, ? FROM events WHERE seq = ?",
                (why, seq),
            )
            self._db.execute("INSERT OR IGNORE INTO set_aside VALUES (?, '', ?)", (seq, why))
            self._db.execute("DELETE FROM events WHERE seq = ?", (seq,))

    def aside(self) -> dict[int, str]:
        """Rows that are not in the log any more, and why."""
        with self._lock:
            return dict(self._db.execute("SELECT seq, why FROM set_aside ORDER BY seq").fetchall())

    def missing(self) -> list[int]:
        """Numbers that the log should have and does not, without those that were set aside."""
        with self._lock:
            (base,) = self._db.execute(BEGINS_AFTER).fetchone()
            there = {seq for (seq,) in self._db.execute("SELECT seq FROM events")}
            there |= {seq for (seq,) in self._db.execute("SELECT seq FROM set_aside")}
            return [seq for seq in range(base + 1, self._last() + 1) if seq not in there]

    def about_job(self, job: JobId, limit: int, until: float | None = None) -> list[Row]:
        """The last events that name a job, by a connection of its own: appends go on."""
        rows = lines_about(self._reading, job, limit, until)
        return [row for row in self._readable(rows) if names(row[2], job)]

    def _last(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if row is None else int(row[0])

    def _readable(self, rows: Iterable[tuple[int, str]]) -> Iterator[Row]:
        for seq, line in rows:
            try:
                yield (seq, *read_event(line))
            except WeftError as error:
                self.set_aside(seq, f"it cannot be read: {error.what}")

    # ---- snapshots

    def save(self, seq: int, snapshot: bytes) -> None:
        """Keep a snapshot beside the one before it."""
        with self._all_or_nothing("a snapshot"):
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (seq, snapshot))
            self._db.execute(
                "DELETE FROM snapshots WHERE seq NOT IN "
                "(SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (SNAPSHOTS_KEPT,),
            )

    def latest(self) -> tuple[int, bytes] | None:
        """The snapshot with the highest number."""
        with self._lock:
            row = self._db.execute(
                "SELECT seq, data FROM snapshots ORDER BY seq DESC LIMIT 1"
            ).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    def keep_base(self, seq: int, at: float, base: bytes) -> None:
        """Keep a snapshot that the log can go on from, should it be cut there."""
        with self._all_or_nothing("a base"):
            self._db.execute("INSERT OR REPLACE INTO bases VALUES (?, ?, ?)", (seq, at, base))

    def bases(self) -> list[tuple[int, float]]:
        """Numbers and times of all bases, oldest first."""
        with self._lock:
            return self._db.execute("SELECT seq, at FROM bases ORDER BY seq").fetchall()

    def base(self) -> tuple[int, bytes] | None:
        """What the log goes on from; None if it has its beginning."""
        with self._lock:
            (seq,) = self._db.execute(BEGINS_AFTER).fetchone()
            row = self._db.execute("SELECT seq, data FROM bases WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    def compact(self, seq: int) -> None:
        """Drop all events up to `seq`, a few at a time; where it stops the log can be read."""
        if seq not in {base for base, _ in self.bases()}:
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

    def shrink(self) -> None:
        """Give the room of dropped events back to the disk; takes a while, and nobody else may."""
        with self._lock:
            self._db.execute("VACUUM")

    @contextmanager
    def _all_or_nothing(self, what: str) -> Iterator[None]:
        """A transaction; StoreError if it cannot be kept."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                lease.check(self._db, self._token)
                yield
                self._db.execute("COMMIT")
            except Superseded:
                self._db.execute("ROLLBACK")
                raise
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise StoreError(
                    f"{what} could not be written to {self.path}: {error}",
                    hint="is the disk full?",
                ) from error

    def beat(self) -> None:
        """Say that its owner is well; Superseded if another has taken the lease."""
        lease.beat(self.path, self._token)

    def close(self) -> None:
        """Let go of the file, so that another process may own it."""
        self._reading.close()
        self._db.close()
        os.close(self._owned)


def own(path: Path) -> int:
    """A lock that the kernel gives back when this process dies."""
    try:
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidConfig(f"cannot keep an event log at {path}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise InvalidConfig(
            f"{path} is in use by another process",
            hint="one service a --state folder; is one still running?",
        ) from error
    return handle
