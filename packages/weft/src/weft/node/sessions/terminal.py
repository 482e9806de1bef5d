"""The terminal of a session: clients see what its process prints, and type into it.

It lives with the agent, so that a session outlasts the service and its viewers. One that
comes is shown the last that was printed.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import socket
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

from weft.base.errors import WireError
from weft.node.guard.identity import admit
from weft.wire.attempt import TERMINAL, short_path
from weft.wire.terminal import DATA, EOF, EXIT, RESIZE, Frames, frame, read_window

KEPT = 1 << 16  # bytes of what was printed, for clients that connect later
FULL = 1 << 20  # bytes that a client has not read; then nothing more is printed until it has
PATIENCE_S = 30.0  # with a client that reads nothing
WARNING_S = 60.0
END_OF_INPUT = b"\x04"
AGAIN_S = 0.5  # a shell that was about to set its terminal up loses an end that came before


class Terminal:
    """A pseudo-terminal's master side and its clients; nothing until it is opened."""

    def __init__(self, folder: Path, select: selectors.BaseSelector, idle_s: float) -> None:
        self._folder, self._select, self._idle_s = folder, select, idle_s
        self._master = -1
        self._kept = b""
        self._viewers: list[_Viewer] = []
        self._path = ""
        self._used = time.monotonic()
        self._warned = False
        self.idled = False
        self._read: Callable[[], None] = lambda: None

    @property
    def watched(self) -> bool:
        """True if a client is connected."""
        return bool(self._viewers)

    def connect(self, master: int, read: Callable[[], None]) -> None:
        """A process has this terminal; `read` is called when it has printed."""
        self._master, self._read = master, read
        self._used = time.monotonic()

    def open(self, master: int, read: Callable[[], None]) -> None:
        """Open it, and let every new connection read."""
        self.connect(master, read)
        self._path = short_path(self._folder / TERMINAL)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._path)
        Path(self._path).chmod(0o600)
        listener.listen(16)
        listener.setblocking(False)
        self._select.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def show(self, chunk: bytes) -> None:
        """Send what the process printed to all who watch, and keep the end of it."""
        if self._master < 0:
            return
        self._note_use()
        self._kept = (self._kept + chunk)[-KEPT:]
        for viewer in [*self._viewers]:
            self._send(viewer, frame(DATA, chunk))
        if any(len(viewer.unread) > FULL for viewer in self._viewers):
            with suppress(KeyError):
                self._select.unregister(self._master)

    def close_ended(self, code: int) -> None:
        """The process has ended: notify the clients, and close."""
        if self._master < 0:
            return
        self._master = -1
        for viewer in [*self._viewers]:
            viewer.socket.settimeout(1.0)
            with suppress(OSError):
                viewer.socket.sendall(bytes(viewer.unread) + frame(EXIT, str(code).encode()))
            self._drop(viewer)
        if self._path:
            Path(self._path).unlink(missing_ok=True)

    def poll(self) -> str:
        """The reason why the session is to end; empty while it is in use. Warns before."""
        if self._master < 0:
            return ""
        now = time.monotonic()
        for viewer in [*self._viewers]:
            if viewer.unread and now - viewer.read_at > PATIENCE_S:
                self._drop(viewer)
            elif now > viewer.end_again_at:
                self._end_input(viewer)
        left_s = self._used + self._idle_s - now
        if not self._idle_s or left_s > min(WARNING_S, self._idle_s / 2.0):
            return ""
        if left_s <= 0.0:
            self.idled = True
            return f"nothing was typed or printed in its session for {self._idle_s:g} s"
        if not self._warned:
            self._warned = True
            warning = f"\r\nweft: idle; this session ends in {left_s:.0f} s unless it is used\r\n"
            for viewer in [*self._viewers]:
                self._send(viewer, frame(DATA, warning.encode()))
        return ""

    def note_asleep(self, *, asleep: bool) -> None:
        """Note if its process is asleep: it cannot be used then."""
        if asleep:
            self._note_use()

    def _note_use(self) -> None:
        self._used, self._warned = time.monotonic(), False

    def _accept(self, listener: socket.socket) -> None:
        if (conversation := admit(listener)) is not None:
            self.admit(conversation)

    def admit(self, conversation: socket.socket) -> None:
        conversation.setblocking(False)
        viewer = _Viewer(conversation)
        self._viewers.append(viewer)
        self._select.register(conversation, selectors.EVENT_READ, partial(self._turn, viewer))
        if self._kept:
            self._send(viewer, frame(DATA, self._kept))

    def _turn(self, viewer: _Viewer) -> None:
        """Read and write whatever a client's connection allows."""
        self._send(viewer, b"")
        if viewer not in self._viewers:
            return
        try:
            chunk = viewer.socket.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        try:
            for kind, payload in viewer.frames.feed(chunk):
                if kind == EOF:
                    self._end_input(viewer)
                else:
                    self._obey(kind, payload)
        except (WireError, ValueError, OSError):
            chunk = b""
        if not chunk:
            self._drop(viewer)

    def _obey(self, kind: bytes, payload: bytes) -> None:
        if self._master < 0:
            return
        if kind == RESIZE:
            size = struct.pack("HHHH", *read_window(payload), 0, 0)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
            return
        if kind == DATA:
            self._note_use()
            self._type(payload)

    def _end_input(self, viewer: _Viewer) -> None:
        """Tell the process that nothing more comes, again and again while it runs."""
        viewer.end_again_at = time.monotonic() + AGAIN_S
        if self._master >= 0:
            self._type(END_OF_INPUT)

    def _type(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                return  # it reads nothing: what is typed now is lost, as on any terminal

    def _send(self, viewer: _Viewer, data: bytes) -> None:
        viewer.unread += data
        try:
            while viewer.unread:
                sent = viewer.socket.send(viewer.unread)
                del viewer.unread[:sent]
                viewer.read_at = time.monotonic()
        except BlockingIOError:
            pass
        except OSError:
            self._drop(viewer)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if viewer.unread else 0)
        self._select.modify(viewer.socket, events, partial(self._turn, viewer))
        self._resume_reading()

    def _drop(self, viewer: _Viewer) -> None:
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            self._select.unregister(viewer.socket)
            viewer.socket.close()
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Read on from the process once all clients have caught up."""
        caught_up = all(len(viewer.unread) <= FULL for viewer in self._viewers)
        if caught_up and self._master >= 0 and self._master not in self._select.get_map():
            self._select.register(self._master, selectors.EVENT_READ, self._read)


class _Viewer:
    """A client of a terminal, with output that it has not read."""

    def __init__(self, conversation: socket.socket) -> None:
        self.socket = conversation
        self.frames = Frames()
        self.unread = bytearray()
        self.read_at = time.monotonic()
        self.end_again_at = inf  # once nothing more is typed
