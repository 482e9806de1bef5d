"""A rank's end of the line to its agent: never in the way of training.

`send` and `poll` only touch queues; a thread of its own connects, reconnects, writes and reads.
When the agent is away the outbox fills up to its bound and then forgets its oldest reports first:
they are worth least.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque

from .errors import WireError
from .messages import FROM_RANK, FromAgent, FromRank, Hello, Report, Saved, from_agent

log = logging.getLogger(__name__)

AGAIN_S = (0.05, 2.0)  # first and longest pause between attempts to connect


class AgentConnection:
    """Connects to the socket at `path` now and whenever the connection is lost."""

    def __init__(self, path: str, hello: Hello, *, outbox: int = 256) -> None:
        self._path = path
        self._hello = hello
        self._outbox: deque[FromRank] = deque()
        self._bound = outbox
        self._inbox: deque[FromAgent] = deque()
        self._last: dict[type[FromRank], FromRank] = {}
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._closing = False
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self.dropped = 0
        self.connected = False
        self._thread = threading.Thread(target=self._run, name="weft-wire", daemon=True)
        self._thread.start()

    def send(self, message: FromRank) -> None:
        """Put `message` into the outbox; the oldest report makes room when it is full."""
        with self._lock:
            if len(self._outbox) >= self._bound:
                self._forget()
            self._outbox.append(message)
            if isinstance(message, (Report, Saved)):
                self._last[type(message)] = message
        self._ring()

    def poll(self) -> list[FromAgent]:
        """Return the agent's messages since the last call."""
        messages: list[FromAgent] = []
        while self._inbox:
            messages.append(self._inbox.popleft())
        return messages

    def close(self, wait_s: float = 1.0) -> bool:
        """Send what is left, for at most `wait_s` seconds; whether all of it went out."""
        with self._drained:
            self._drained.wait_for(lambda: not self._outbox, timeout=wait_s)
            self._closing, empty = True, not self._outbox
        self._ring()
        self._thread.join(timeout=max(wait_s, 0.1))
        return empty

    def _forget(self) -> None:
        self.dropped += 1
        for at, message in enumerate(self._outbox):
            if isinstance(message, Report):
                del self._outbox[at]
                return
        self._outbox.popleft()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # full: it will wake up anyway
            self._bell.send(b"!")

    def _run(self) -> None:
        pause = AGAIN_S[0]
        while not self._closing:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                    line.settimeout(5.0)
                    line.connect(self._path)
                    pause = AGAIN_S[0]
                    self._talk(line)
            except (OSError, WireError) as error:
                log.debug("agent=%s away: %s", self._path, error)
            self.connected = False
            if self._closing:
                break
            self._rest(pause)
            pause = min(pause * 2.0, AGAIN_S[1])
        self._bell.close()
        self._ear.close()

    def _rest(self, pause: float) -> None:
        """Wait before connecting again; sends do not shorten it, closing does."""
        until = time.monotonic() + pause
        while not self._closing and (left := until - time.monotonic()) > 0:
            select.select([self._ear], [], [], left)
            self._hush()

    def _hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ear.recv(4096):
                pass

    def _talk(self, line: socket.socket) -> None:
        """Write and read until the connection or the client ends."""
        words = from_agent()
        line.sendall(FROM_RANK.encode(self._hello))
        with self._lock:
            again = [m for m in self._last.values() if m not in self._outbox]
        for message in again:
            line.sendall(FROM_RANK.encode(message))
        self.connected = True
        while True:
            self._drain(line)
            if self._closing:
                return
            ready, _, _ = select.select([line, self._ear], [], [])
            if self._ear in ready:
                self._hush()
            if line in ready:
                chunk = line.recv(65_536)
                if not chunk:
                    return
                self._inbox.extend(words.feed(chunk))

    def _drain(self, line: socket.socket) -> None:
        while True:
            with self._lock:
                if not self._outbox:
                    self._drained.notify_all()
                    return
                message = self._outbox[0]
            line.sendall(FROM_RANK.encode(message))
            with self._lock:
                # It may have been forgotten meanwhile, to make room.
                if self._outbox and self._outbox[0] is message:
                    self._outbox.popleft()
