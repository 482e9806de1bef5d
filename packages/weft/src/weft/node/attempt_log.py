"""The agent's own log of an attempt: JSON lines, on disk before listeners are notified."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from weft.wire.attempt import EVENTS
from weft.wire.shared_files import make_file

FORGETTABLE = ("report", "metrics", "notice", "saved", "health")
BURST, RATE = 16 << 20, 8 << 10  # bytes of those at once, and per second from then on
PATIENCE_S = 3600.0  # a job that ended while the disk was full is not to be run again


class Journal:
    """`events.jsonl` of one attempt; the listener at `notify` is woken after each line."""

    def __init__(self, folder: Path, notify: str) -> None:
        self._out = make_file(folder / EVENTS, os.O_WRONLY | os.O_APPEND)
        self._notify = notify
        self._room = TokenBucket(BURST, RATE)
        self._bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._bell.setblocking(False)

    def write(self, event: str, **values: object) -> None:
        """Append one event and wait until it is on disk.

        On a full disk what a rank said is forgotten, and so is what it said beyond its room;
        everything else is tried again for a while, since it would otherwise be lost.
        """
        line = json.dumps({"at": time.time(), "event": event, **values}, separators=(",", ":"))
        if event in FORGETTABLE and not self._room.take(len(line)):
            return
        until = time.monotonic() + (0.0 if event in FORGETTABLE else PATIENCE_S)
        while not self._append(line.encode() + b"\n"):
            if event in FORGETTABLE:
                return
            if time.monotonic() > until:
                raise OSError(errno.ENOSPC, f"{event!r} cannot be written down")
            time.sleep(0.2)
        self.wake_listener()

    def wake_listener(self) -> None:
        """Wake the listener."""
        if self._notify:
            with suppress(OSError):  # no listener now; the next one reads the file
                self._bell.sendto(b"!", self._notify)

    def close(self) -> None:
        os.close(self._out)
        self._bell.close()

    def is_heard(self) -> bool | None:
        """True if anyone listens; None if that cannot be known, on another machine."""
        return is_heard(self._notify) if self._notify else None

    def _append(self, line: bytes) -> bool:
        size = os.fstat(self._out).st_size
        try:
            whole = os.write(self._out, line) == len(line)
            if whole:
                os.fsync(self._out)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            whole = False
        if not whole:
            os.ftruncate(self._out, size)
        return whole


class TokenBucket:
    """Allow some bytes at once, and `rate` more each second: no job can fill the disk with text."""

    def __init__(self, burst: int, rate: float) -> None:
        self._burst, self._rate = burst, rate
        self._left, self._at = float(burst), time.monotonic()

    def take(self, size: int) -> bool:
        """True if so much may be written now."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if size > self._left:
            return False
        self._left -= size
        return True


def is_heard(notify: str) -> bool:
    """True if anyone listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.setblocking(False)
        try:
            bell.sendto(b"!", notify)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True  # too much was said already
        return True


def audit(path: str, what: str, job: str, attempt: int) -> None:
    """Append when an agent began or ended to the file all agents share; not on a full disk."""
    if not path:
        return
    line = json.dumps({"at": time.time(), "what": what, "job": job, "attempt": attempt})
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(out, line.encode() + b"\n")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
    finally:
        os.close(out)
