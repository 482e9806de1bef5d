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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig, StoreError, WeftError
from weft.store import lease
from weft.store.ended_jobs import TABLE, EndedTable
from weft.store.sql_log import IN_SQLITE, INDEXES, SqlLog

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


class _Mine(threading.local):
    """Connection that every thread has of its own."""

    db: sqlite3.Connection | None = None


class SqliteReader:
    """Questions to the file `path` beside the writer, so that no reader waits for a sync.

    Every thread has a connection. Where none can be had, as when too many files are open, they are
    asked through that of the `owner`; `lock` is held by its user.
    """

    def __init__(self, path: Path, owner: sqlite3.Connection, lock: threading.Lock) -> None:
        self._path, self._owner, self._lock = path, owner, lock
        self._mine = _Mine()
        self._open: list[sqlite3.Connection] = []

    def query(self, words: str, values: Any = ()) -> list[Any]:
        try:
            return self._connection().execute(words, values).fetchall()
        except sqlite3.OperationalError:
            with self._lock:
                return self._owner.execute(words, values).fetchall()

    def close(self) -> None:
        """Let go of every thread's connection."""
        for connection in self._open:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        db = self._mine.db
        if db is None:
            address = f"{self._path.absolute().as_uri()}?mode=ro"
            db = sqlite3.connect(address, uri=True, check_same_thread=False)
            db.execute("SELECT 1 FROM sqlite_master").fetchall()  # opens its files
            self._mine.db = db
            self._open.append(db)
        return db


class SqliteStore(SqlLog):
    """The log in the file `path`; its folder must be there. `holder` is for a standby to read."""

    failures = (sqlite3.Error,)
    search = IN_SQLITE
    _db: sqlite3.Connection
    _reading: SqliteReader

    def __init__(self, path: Path | str, holder: str = "") -> None:
        super().__init__()
        self.path = Path(path)
        self.where = str(self.path)
        self._owned = own(self.path)
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            self.path.chmod(0o600)  # jobs' variables are in the log
            written = self._open()
            self._token = lease.take_lease(self._db, holder)
            self._bring_up(written)
            self._reading = SqliteReader(self.path, self._db, self._lock)
            self.ended = EndedTable(self._reading, self._db, self._all_or_nothing)
        except (sqlite3.DatabaseError, OSError) as error:
            os.close(self._owned)
            raise InvalidConfig(
                f"{self.path} cannot be read as an event log: {error}", hint=HELP
            ) from error
        except WeftError:
            self._db.close()
            os.close(self._owned)
            raise

    def _open(self) -> int:
        """Make what is not there; the format that the log has."""
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        self._refuse_newer(version)
        if version == 2:  # had no bases yet, and no time in them
            self._db.execute("DROP TABLE IF EXISTS bases")
        self._db.executescript(_TABLES + TABLE + INDEXES + lease.TABLE)
        return int(version)

    def _set_format(self, number: int) -> None:
        self._db.execute(f"PRAGMA user_version={number}")

    def _put_line(self, seq: int, line: str) -> None:
        values = (seq, json.loads(line)["at"], line)
        self._db.execute("INSERT OR REPLACE INTO events (seq, at, json) VALUES (?, ?, ?)", values)

    def _insert(self, lines: Sequence[tuple[float, str]]) -> int:
        self._db.executemany("INSERT INTO events (at, json) VALUES (?, ?)", lines)
        return self._last()

    def _last(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if row is None else int(row[0])

    def _begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        lease.check(self._db, self._token)

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def shrink(self) -> None:
        """Give the room of dropped events back to the disk; takes a while, and locks the file."""
        with self._lock:
            self._db.execute("VACUUM")

    def renew_lease(self) -> None:
        try:
            lease.renew_lease(self.path, self._token)
        except sqlite3.Error as error:  # a full disk, such as appends meet as well
            raise StoreError(f"the lease was not renewed: {error}") from error

    def close(self) -> None:
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
            hint="only one service per --state folder; is one still running?",
        ) from error
    return handle
