"""The event log in a PostgreSQL database, for services on several machines.

The leader holds an advisory lock of its session, as it would hold the lock on a file, and the
token of the lease, which every transaction checks. A session that breaks is opened again only
while no other service has taken either.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from weft.core.errors import InvalidConfig, StoreError, Superseded
from weft.store import lease
from weft.store.ended_jobs import TABLE, EndedTable
from weft.store.lease import Lease
from weft.store.sql_log import Search, SqlLog

try:
    import psycopg
except ImportError as missing:
    raise InvalidConfig(
        "a log in PostgreSQL needs psycopg", hint="pip install 'weft[postgres]'"
    ) from missing

CALLED_1 = 4  # the format that was 1 in databases
LEADS, WAITS = 0x77656674, 0x77656675  # advisory locks: of the leader, and of the first in line
READERS = 4
LOOP_S, HUNG_S = 2, 10.0
CONNECT_S = 10
LOST_MS = 10_000  # a server that takes nothing in for that long is out of reach
BUSY_MS = 500
AGAIN_S = 0.2
ENDING_S = 5.0
AWAY = "the service goes on by itself once the database answers; ask again then"
TABLES = """
CREATE TABLE IF NOT EXISTS log_format (version BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    seq BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, kind TEXT COLLATE "C",
    job TEXT COLLATE "C", json TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job, seq) WHERE kind <> 'Decided';
CREATE INDEX IF NOT EXISTS decisions ON events (seq) WHERE kind = 'Decided';
CREATE INDEX IF NOT EXISTS events_at ON events (at);
CREATE TABLE IF NOT EXISTS snapshots (seq BIGINT PRIMARY KEY, data BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS bases (
    seq BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, data BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS set_aside (
    seq BIGINT PRIMARY KEY, json TEXT NOT NULL, why TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS lease (
    row BIGINT PRIMARY KEY CHECK (row = 1), token BIGINT NOT NULL, beat BIGINT NOT NULL,
    holder TEXT NOT NULL, last BIGINT NOT NULL);
INSERT INTO lease VALUES (1, 0, 0, '', 0) ON CONFLICT DO NOTHING;
"""
TYPES = (
    (" STRICT", ""),
    ("INTEGER", "BIGINT"),
    ("REAL", "DOUBLE PRECISION"),
    ("BLOB", "BYTEA"),
    ("TEXT", 'TEXT COLLATE "C"'),
)
NUMBER = "UPDATE lease SET last = last + ? RETURNING last"
INSERT = "INSERT INTO events (seq, at, kind, job, json) VALUES (?, ?, ?, ?, ?)"
END_HOLDER = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = 0 AND objid = ? AND pid <> pg_backend_pid() AND database =
(SELECT oid FROM pg_database WHERE datname = current_database())
"""
PLACEHOLDER = re.compile(r"\?|(?<!:):(\w+)")


class PostgresSession:
    """A connection that takes our words: `?` and `:name` stand for values."""

    def __init__(self, address: str, *, durable: bool = True, connect_s: int = CONNECT_S) -> None:
        try:
            self._db = psycopg.connect(
                address,
                autocommit=True,
                connect_timeout=connect_s,
                cursor_factory=psycopg.ClientCursor,
                application_name="weft",
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=LOST_MS,
            )
            if not durable:
                self._db.execute("SET synchronous_commit = off")
        except psycopg.Error as error:
            raise StoreError(f"PostgreSQL does not answer: {error}", hint=AWAY) from error

    def execute(self, words: str, values: Any = (), /) -> psycopg.Cursor[Any]:
        with self._saying():
            return self._db.execute(_translate(words), values or None)

    def executemany(self, words: str, rows: Any, /) -> None:
        with self._saying(), self._db.cursor() as cursor:
            cursor.executemany(_translate(words), rows)

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """StoreError where the session is gone."""
        try:
            yield
        except psycopg.Error as error:
            if not self._db.closed:
                raise
            raise StoreError(f"PostgreSQL does not answer: {error}", hint=AWAY) from error

    def lock(self, key: int) -> bool:
        """Have an advisory lock for as long as the session lasts, unless another has it."""
        (mine,) = self.execute("SELECT pg_try_advisory_lock(?)", (key,)).fetchone() or (False,)
        return bool(mine)

    @property
    def backend_pid(self) -> int:
        """The process number of the session on the server."""
        return self._db.info.backend_pid

    @property
    def broken(self) -> bool:
        """True if it can be used no more."""
        return self._db.closed

    @property
    def in_transaction(self) -> bool:
        """True if a transaction was begun and not ended."""
        return self._db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    @contextmanager
    def at_most(self, seconds: float | None) -> Iterator[None]:
        """Cut the session off after that time, so that a question which takes longer fails."""
        if seconds is None:
            yield
            return
        ending = threading.Timer(seconds, self._cut)
        ending.start()
        try:
            yield
        finally:
            ending.cancel()

    def _cut(self) -> None:
        with (
            suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(self._db.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._db.close()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@lru_cache(256)
def _translate(words: str) -> str:
    return PLACEHOLDER.sub(lambda match: f"%({match[1]})s" if match[1] else "%s", words)


class Readers:
    """A few sessions for questions from any thread.

    A question of an event loop holds up everyone, so it has `LOOP_S`, also for a session to be
    free; for a while after one that took longer, the next ones are refused at once.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._hung = -HUNG_S
        self._idle: queue.LifoQueue[PostgresSession | None] = queue.LifoQueue()
        for _ in range(READERS):
            self._idle.put(None)

    def query(self, words: str, values: Any = ()) -> list[Any]:
        """All rows of the answer; a session that broke meanwhile is opened again."""
        if not _in_a_loop():
            return self._ask(words, values, None)
        if time.monotonic() - self._hung < HUNG_S:
            raise StoreError(f"PostgreSQL does not answer within {LOOP_S} s", hint=AWAY)
        began = time.monotonic()
        try:
            return self._ask(words, values, LOOP_S)
        except (StoreError, queue.Empty) as error:
            if time.monotonic() - began < LOOP_S:
                raise
            self._hung = time.monotonic()
            raise StoreError(f"PostgreSQL does not answer within {LOOP_S} s", hint=AWAY) from error

    def _ask(self, words: str, values: Any, most_s: int | None) -> list[Any]:
        session = self._idle.get(timeout=most_s)
        try:
            if session is not None:
                try:
                    with session.at_most(most_s):
                        return session.execute(words, values).fetchall()
                except StoreError:
                    session.close()
            session = PostgresSession(self._address, connect_s=most_s or CONNECT_S)
            with session.at_most(most_s):
                return session.execute(words, values).fetchall()
        finally:
            self._idle.put(session)

    def close(self) -> None:
        for _ in range(READERS):
            if (session := self._idle.get()) is not None:
                session.close()


class PostgresStore(SqlLog):
    """The log in the database at `address`; `holder` is for a standby to read."""

    failures = (psycopg.Error,)
    search = Search("kind", "job", "strpos")
    _reading: Readers

    def __init__(self, address: str, holder: str = "") -> None:
        super().__init__()
        self._address = address
        self.where = describe(address)
        self._beats: PostgresSession | None = None
        try:
            self._session = PostgresSession(address)
            self._number = self._session.backend_pid
            self._token, written = self._lead(holder)
            self._bring_up(written)
        except (StoreError, psycopg.Error) as error:
            raise InvalidConfig(f"{self.where} cannot be used as an event log: {error}") from error
        self._reading = Readers(address)
        self.ended = EndedTable(self._reading, self, self._all_or_nothing)

    def _lead(self, holder: str) -> tuple[int, int]:
        """The token of a new leader, and the format of the log that it finds."""
        try:
            self._lock_soon()
            self._refuse_newer(written := self._format())
            self._make_tables()
            (token,) = self._db.execute(lease.TAKE, (holder,)).fetchone() or (0,)
        except BaseException:
            self._session.close()
            raise
        return int(token), written

    def _lock_soon(self) -> None:
        """Have the leader's lock; a session that ends holds it for a moment longer."""
        until = time.monotonic() + ENDING_S
        while not self._session.lock(LEADS):
            if time.monotonic() > until:
                raise InvalidConfig(
                    f"{self.where} is in use by another service",
                    hint="one service per database; `--standby` waits for the other",
                )
            time.sleep(AGAIN_S)

    def _make_tables(self) -> None:
        ended = TABLE
        for ours, theirs in TYPES:
            ended = ended.replace(ours, theirs)
        self._db.execute(TABLES + ended)

    def _format(self) -> int:
        """The format that the log has; 0 where there is none yet."""
        (there,) = self._db.execute("SELECT to_regclass('log_format')").fetchone() or (None,)
        row = there and self._db.execute("SELECT version FROM log_format").fetchone()
        return int(row[0]) if row else 0

    def _set_format(self, number: int) -> None:
        self._db.execute("DELETE FROM log_format")
        number = 1 if number == CALLED_1 else number
        self._db.execute("INSERT INTO log_format VALUES (?)", (number,))

    def _put_line(self, seq: int, line: str) -> None:
        self._db.execute("DELETE FROM events WHERE seq = ?", (seq,))
        self._db.execute(INSERT, (seq, json.loads(line)["at"], *_about(line), line))

    # ---- as the connection of its tables, whichever session that is now

    @property
    def _db(self) -> PostgresSession:  # type: ignore[override]
        """The owner's session; a broken one is opened again, unless another leads."""
        if self._session.broken:
            self._reopen()
        return self._session

    def execute(self, words: str, values: Any = (), /) -> Any:
        """Run a statement in the owner's session."""
        return self._db.execute(words, values)

    def executemany(self, words: str, rows: Any, /) -> None:
        """Run a statement with each of several rows, in the owner's session."""
        self._db.executemany(words, rows)

    # ---- transactions

    def _insert(self, lines: Sequence[tuple[float, str]]) -> int:
        (last,) = self._db.execute(NUMBER, (len(lines),)).fetchone() or (0,)
        first = last - len(lines) + 1
        rows = [(first + at, when, *_about(line), line) for at, (when, line) in enumerate(lines)]
        if rows:
            self._db.executemany(INSERT, rows)
        return int(last)

    def _last(self) -> int:
        (last,) = self._db.execute("SELECT last FROM lease").fetchone() or (0,)
        return int(last)

    def _begin(self) -> None:
        self._db.execute("BEGIN")
        (token,) = self._db.execute("SELECT token FROM lease FOR UPDATE").fetchone() or (0,)
        lease.check_token(token, self._token)

    def _roll_back(self) -> None:
        with suppress(psycopg.Error, StoreError):  # a session that breaks undoes what it began
            if not self._session.broken and self._session.in_transaction:
                self._session.execute("ROLLBACK")

    def _reopen(self) -> None:
        session = PostgresSession(self._address)
        try:
            session.execute(f"{END_HOLDER} AND pid = ?", (LEADS, self._number))  # it may linger
            self._wait_for_lock(session)
        except BaseException:
            session.close()
            raise
        self._session, self._number = session, session.backend_pid

    def _wait_for_lock(self, session: PostgresSession) -> None:
        """Until our own earlier session has given it back; Superseded if another leads."""
        until = time.monotonic() + CONNECT_S
        while True:
            self._compare(session)  # first, for the lock is the new leader's to take
            if session.lock(LEADS):
                self._compare(session)
                return
            if time.monotonic() > until:
                raise StoreError(f"another session holds {self.where}")
            time.sleep(AGAIN_S)

    def _compare(self, session: PostgresSession) -> None:
        (token,) = session.execute("SELECT token FROM lease").fetchone() or (0,)
        lease.check_token(token, self._token)

    def renew_lease(self) -> None:
        try:
            if self._beats is None or self._beats.broken:
                self._beats = PostgresSession(self._address, durable=False)
            if not self._beats.execute(lease.BEAT, (self._token,)).rowcount:
                self._compare(self._beats)
        except Superseded:
            raise
        except (psycopg.Error, StoreError) as error:
            raise StoreError(f"the lease was not renewed: {error}") from error

    def close(self) -> None:
        """End all sessions, so that another service may lead."""
        self._reading.close()
        self._session.close()
        if self._beats is not None:
            self._beats.close()


class PostgresPlace:
    """A log in a database, as a standby sees it."""

    def __init__(self, address: str) -> None:
        self.name, self._address = describe(address), address
        self._session = PostgresSession(address)

    def is_first(self) -> bool:
        return self._session.lock(WAITS)

    def is_free(self) -> bool:
        if free := self._session.lock(LEADS):
            self._session.execute("SELECT pg_advisory_unlock(?)", (LEADS,))
        return free

    def read(self) -> Lease:
        """The leader; the empty lease where there is no log yet."""
        try:
            row = self._session.execute("SELECT token, beat, holder FROM lease").fetchone()
        except psycopg.errors.UndefinedTable:
            return Lease()
        return Lease() if row is None else Lease(*row)

    def take_from(self, seen: Lease) -> bool:
        """Take the token of a leader that stands still, and end its session.

        One that stands inside a transaction has its session ended first: that undoes it, and
        frees the lock, so the token is taken before any standby can see that no service leads.
        """
        self._session.execute(f"SET lock_timeout = {BUSY_MS}")
        until = time.monotonic() + ENDING_S
        while True:
            try:
                taken = self._session.execute(lease.TAKE_FROM, (seen.token, seen.beat)).rowcount
            except psycopg.errors.LockNotAvailable as error:
                self._session.execute(END_HOLDER, (LEADS,))
                if time.monotonic() > until:
                    raise StoreError(f"the leader is inside a transaction: {error}") from error
                continue
            if taken:
                self._session.execute(END_HOLDER, (LEADS,))
            return bool(taken)

    def close(self) -> None:
        self._session.close()


def describe(address: str) -> str:
    """Return the address of a database without its password."""
    return re.sub(r"(//[^:@/]*):[^@/]*@", r"\1@", address)


def _about(line: str) -> tuple[str | None, str | None]:
    """The kind of an event and the job it is about, as far as a column can hold them."""
    body = json.loads(line)
    job = body.get("job")
    name = job.get("id") if isinstance(job, dict) else job
    if not isinstance(name, str) or "\x00" in name or not _is_plain(name):
        name = None
    return body.get("event"), name


def _is_plain(text: str) -> bool:
    with suppress(UnicodeEncodeError):
        text.encode()
        return True
    return False
