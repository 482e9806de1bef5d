"""Reading beside who writes: a connection for every thread, so that nobody waits for a sync."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any


class _Mine(threading.local):
    """What every thread has of its own."""

    db: sqlite3.Connection | None = None


class Reading:
    """Questions to the database in the file `path`.

    Where no connection can be had, as when too many files are open, they are asked through that
    of the `owner`; `lock` is held by whoever uses it.
    """

    def __init__(self, path: Path, owner: sqlite3.Connection, lock: threading.Lock) -> None:
        self._path, self._owner, self._lock = path, owner, lock
        self._mine = _Mine()
        self._open: list[sqlite3.Connection] = []

    def ask(self, words: str, values: Any = ()) -> list[Any]:
        """All rows of the answer."""
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
