"""Leadership of one service: one row beside the log, with a fencing token that only grows.

A service that opens the log takes the next token, and every transaction checks that it is still the
last one. `beat` grows while its holder is well, so that clocks need not be compared.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from weft.core.errors import Superseded

TABLE = """
CREATE TABLE IF NOT EXISTS lease (
    only INTEGER PRIMARY KEY CHECK (only = 1), token INTEGER NOT NULL, beat INTEGER NOT NULL,
    holder TEXT NOT NULL) STRICT;
INSERT OR IGNORE INTO lease VALUES (1, 0, 0, '');
"""
TAKE = "UPDATE lease SET token = token + 1, beat = 0, holder = ? RETURNING token"
BEAT = "UPDATE lease SET beat = beat + 1 WHERE token = ?"
TAKE_FROM = "UPDATE lease SET token = token + 1 WHERE token = ? AND beat = ?"
BUSY_S = 0.5


class Lease(NamedTuple):
    """The row as it was read; `holder` is what its process says about itself."""

    token: int = 0
    beat: int = 0
    holder: str = ""


def take_lease(db: sqlite3.Connection, holder: str) -> int:
    """The next token, as the owner of the log."""
    (token,) = db.execute(TAKE, (holder,)).fetchone()
    return int(token)


def check(db: sqlite3.Connection, token: int) -> None:
    """Raise Superseded unless `token` is the last that was taken; inside a transaction."""
    (last,) = db.execute("SELECT token FROM lease").fetchone()
    check_token(last, token)


def check_token(last: int, token: int) -> None:
    """Raise Superseded unless `token` is the last that was taken."""
    if last != token:
        raise Superseded(
            f"another service has taken over the log (token {last}, ours was {token})",
            hint="this one stops acting; jobs go on under the other",
        )


def renew_lease(path: Path, token: int) -> None:
    """Say that the holder of `token` is well; nothing waits for the disk."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        if not db.execute(BEAT, (token,)).rowcount:
            check(db, token)


def read(path: Path) -> Lease:
    """The leader; the empty lease where there is no log yet."""
    if not path.exists():
        return Lease()
    with closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'lease'").fetchone():
            return Lease()
        row = db.execute("SELECT token, beat, holder FROM lease").fetchone()
        return Lease() if row is None else Lease(*row)  # its table may be just being made


def take_from(path: Path, seen: Lease) -> bool:
    """Take the token of a holder that has not moved since it was seen; False if it has.

    From then on its transactions fail. sqlite3.OperationalError if it stands inside of one.
    """
    with closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as db:
        return bool(db.execute(TAKE_FROM, (seen.token, seen.beat)).rowcount)
