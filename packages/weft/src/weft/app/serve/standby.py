"""A service that waits beside another and takes over when that one is gone or stands still.

The leader holds a lock on the log: the kernel gives it back when the last thread of its process
is gone, PostgreSQL when its session is. A leader whose lease stands still loses its token, so that
it can write nothing more, and is ended where it can be reached; only then can the lock be had.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from weft.app.state.folder import LOG, make_private
from weft.core.errors import InvalidConfig, StoreError
from weft.store import lease
from weft.store.lease import Lease
from weft.store.sqlite import own
from weft.wire.processes import start_time

log = logging.getLogger(__name__)

POLL_S = 0.25
STALE_S = 5.0  # without a beat: five were missed
STARTING_S = 120.0  # until the first beat: a log may be long, and a cluster slow to answer
ENDING_S = 30.0
LINE = "standby.lock"


def describe_process() -> str:
    """The facts that a standby needs to end this process, and no other process."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "began": start_time(os.getpid())}
    return json.dumps({**me, "space": _pid_space()})


class LogPlace(Protocol):
    """The place of a log, as a standby sees it; `name` is for people."""

    name: str

    def is_first(self) -> bool:
        """True if no other standby waits before us."""
        ...

    def is_free(self) -> bool: ...

    def read(self) -> Lease:
        """The lease of the service that leads; StoreError while that is unknown."""
        ...

    def take_from(self, seen: Lease) -> bool:
        """Take the token of a leader that has not moved since it was seen; False if it has."""
        ...

    def close(self) -> None:
        """Let the next in line wait."""
        ...


class FilePlace:
    """A log in the folder `state`."""

    def __init__(self, state: Path) -> None:
        make_private(state)
        self.name, self._log = str(state), state / LOG
        self._line = os.open(state / LINE, os.O_RDWR | os.O_CREAT, 0o600)

    def is_first(self) -> bool:
        """True if the standby's lock can be had, which is then ours."""
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._line, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def is_free(self) -> bool:
        """True if the lock of the log can be had."""
        try:
            os.close(own(self._log))
        except InvalidConfig:
            return False
        return True

    def read(self) -> Lease:
        with self._unless_busy():
            return lease.read(self._log)

    def take_from(self, seen: Lease) -> bool:
        with self._unless_busy():
            return lease.take_from(self._log, seen)

    def close(self) -> None:
        os.close(self._line)

    @contextlib.contextmanager
    def _unless_busy(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"the leader is inside a transaction: {error}") from error


def open_place(state: Path, database: str) -> LogPlace:
    """The place where a service with these settings keeps its log."""
    if not database:
        return FilePlace(state)
    from weft.store.postgres import PostgresPlace

    return PostgresPlace(database)


class Standby:
    """One that waits for the log at `place`; `each` is called at every look.

    Several standbys wait in line: the first holds a lock until `release`.
    """

    def __init__(self, place: LogPlace, each: Callable[[], None] = lambda: None) -> None:
        self._place, self._each = place, each
        self._seen, self._since = Lease(), time.monotonic()

    def wait(self) -> None:
        while not self._place.is_first():
            self._pause()
        while not self._place.is_free():
            self._end_stuck_leader()
            self._pause()

    def release(self) -> None:
        """Let the next in line wait for us."""
        self._place.close()

    def _pause(self) -> None:
        self._each()
        time.sleep(POLL_S)

    def _end_stuck_leader(self) -> None:
        """Take the token of a leader that has stood still for too long, and end it."""
        now = time.monotonic()
        with contextlib.suppress(StoreError):  # it stands inside a transaction
            seen = self._place.read()
            if seen != self._seen:
                self._seen, self._since = seen, now
        limit_s = STALE_S if self._seen.beat else STARTING_S
        if now - self._since < limit_s or not self._seen.holder:
            return
        log.warning("the leader has not responded for %.0f s: %s", limit_s, self._seen.holder)
        self._since = now
        with contextlib.suppress(StoreError):
            if not self._place.take_from(self._seen):
                return
        end_leader(self._seen.holder)


def end_leader(holder: str) -> None:
    """End the process that describes itself so, if it is one of this machine's and still there."""
    process = json.loads(holder)
    if process["space"] != _pid_space():
        log.warning("the leader runs elsewhere, writes nothing and ends by itself: %s", holder)
        return
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(process["pid"])
        try:
            if start_time(process["pid"]) == process["began"]:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                gone = select.poll()
                gone.register(handle, select.POLLIN)
                gone.poll(ENDING_S * 1e3)  # only then is its port free
        except PermissionError:
            log.error("the leader is another user's and must end by itself: %s", holder)  # noqa: TRY400
        finally:
            os.close(handle)


def _pid_space() -> str:
    """The scope of process numbers: one boot of one machine, one namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
