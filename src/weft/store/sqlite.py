"""The event log in one SQLite file: `events(seq, at, json)`, appended to and never changed.

Write-ahead logging with a full sync at each commit: what `append` returned for survives
`kill -9` and a power cut. One process at a time owns the file; a second one is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from weft.core.codec import event_line, read_event
from weft.core.errors import InvalidConfig, WeftError
from weft.core.events import Event, names
from weft.core.model import JobId

VERSION = 1
SNAPSHOTS_KEPT = 2
_TABLES = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, json TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS snapshots (seq INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
"""


class SqliteStore:
    """The log in the file `path`; its folder must be there."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._owned = _own(self.path)
        try:
            self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            self.path.chmod(0o600)  # jobs' variables are in the log
            self._open()
        except sqlite3.DatabaseError as error:
            os.close(self._owned)
            raise InvalidConfig(
                f"{self.path} cannot be read as an event log: {error}",
                hint="name another --state folder, or move the file away",
            ) from error

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found > VERSION:
            raise InvalidConfig(
                f"{self.path} was written by a newer version of weft (log format {found})",
                hint=f"this one reads up to format {VERSION}",
            )
        self._db.executescript(_TABLES)
        self._db.execute(f"PRAGMA user_version={VERSION}")

    def append(self, events: Sequence[tuple[float, Event]]) -> int:
        """Keep them in one transaction; the number of the last."""
        rows = [(at, event_line(at, event)) for at, event in events]
        with self._all_or_nothing(f"{len(rows)} events"):
            self._db.executemany("INSERT INTO events (at, json) VALUES (?, ?)", rows)
            (last,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        return int(last)

    def since(self, seq: int, limit: int | None = None) -> list[tuple[int, float, Event]]:
        """Events after number `seq`."""
        with self._lock:
            rows = self._db.execute(
                "SELECT seq, json FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                (seq, -1 if limit is None else limit),
            ).fetchall()
        return [(number, *read_event(line)) for number, line in rows]

    def about_job(self, job: JobId, limit: int) -> list[tuple[int, float, Event]]:
        """The last events that name a job, by a connection of its own: appends go on."""
        db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
        found: deque[tuple[int, float, Event]] = deque(maxlen=limit)
        try:
            rows = db.execute(
                "SELECT seq, json FROM events WHERE instr(json, ?) > 0 ORDER BY seq",
                (json.dumps(job),),
            )
            for seq, line in rows:
                at, event = read_event(line)
                if names(event, job):
                    found.append((seq, at, event))
        finally:
            db.close()
        return [*found]

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

    @contextmanager
    def _all_or_nothing(self, what: str) -> Iterator[None]:
        """A transaction; WeftError if it cannot be kept."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise WeftError(
                    f"{what} could not be written to {self.path}: {error}",
                    hint="is the disk full?",
                ) from error

    def close(self) -> None:
        """Let go of the file, so that another process may own it."""
        self._db.close()
        os.close(self._owned)


def _own(path: Path) -> int:
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
