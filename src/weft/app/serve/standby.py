"""A service that waits beside another and takes over when that one is gone or stands still.

The kernel keeps two from leading: whoever leads holds a lock on the log, which is given back when
the last thread of its process is gone. A leader whose lease stands still loses its token, so that
it can write nothing more, and is ended; only then can the lock be had.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from weft.app.state.folder import LOG, make_private
from weft.core.errors import InvalidConfig
from weft.store import lease
from weft.store.lease import Lease
from weft.store.sqlite import own
from weft.wire.processes import start_time

log = logging.getLogger(__name__)

POLL_S = 0.25
STALE_S = 5.0  # without a beat: five were missed
STARTING_S = 120.0  # until the first beat: a log may be long, and a cluster slow to answer
LINE = "standby.lock"


def describe_process() -> str:
    """What a standby needs to end this process, and nobody else."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "began": start_time(os.getpid())}
    return json.dumps({**me, "space": _pid_space()})


class Standby:
    """One that waits for the log in the folder `state`; `each` is called at every look.

    Several wait in line: whoever is first holds a lock until `release`.
    """

    def __init__(self, state: Path, each: Callable[[], None] = lambda: None) -> None:
        make_private(state)
        self._log, self._each = state / LOG, each
        self._line: int | None = os.open(state / LINE, os.O_RDWR | os.O_CREAT, 0o600)
        self._seen, self._since = Lease(), time.monotonic()

    def wait(self) -> None:
        """Until nobody leads."""
        while not self._is_first():
            self._pause()
        while not self._is_free():
            self._look()
            self._pause()

    def release(self) -> None:
        """Let the next in line wait for us."""
        if self._line is not None:
            os.close(self._line)
            self._line = None

    def _pause(self) -> None:
        self._each()
        time.sleep(POLL_S)

    def _is_first(self) -> bool:
        assert self._line is not None
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._line, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _is_free(self) -> bool:
        try:
            os.close(own(self._log))
        except InvalidConfig:
            return False
        return True

    def _look(self) -> None:
        """Take the token of a leader that has stood still for too long, and end it."""
        now = time.monotonic()
        with contextlib.suppress(sqlite3.OperationalError):  # it stands inside a transaction
            seen = lease.read(self._log)
            if seen != self._seen:
                self._seen, self._since = seen, now
        limit_s = STALE_S if self._seen.beat else STARTING_S
        if now - self._since < limit_s or not self._seen.holder:
            return
        log.warning("the leader has stood still for %.0f s: %s", limit_s, self._seen.holder)
        self._since = now
        with contextlib.suppress(sqlite3.OperationalError):
            if not lease.take_from(self._log, self._seen):
                return
        end_leader(self._seen.holder)


def end_leader(holder: str) -> None:
    """End the process that describes itself so, if it is one of this machine's and still there."""
    process = json.loads(holder)
    if process["space"] != _pid_space():
        log.error("the leader runs elsewhere and must end by itself: %s", holder)
        return
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(process["pid"])
        try:
            if start_time(process["pid"]) == process["began"]:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except PermissionError:
            log.error("the leader is another user's and must end by itself: %s", holder)  # noqa: TRY400
        finally:
            os.close(handle)


def _pid_space() -> str:
    """Where a process number means the same: one boot of one machine, one namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
