"""A person's terminal connected to a job's, and connections to a port here carried to a job's."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

from weft.cli.connect.client import RequestRefused, ServiceClient, ServiceUnreachable
from weft.cli.connect.duplex import Talk
from weft.cli.connect.follow import AWAY, POLL_S, exit_code, state_line
from weft.cli.view.words import ENDED
from weft.core.errors import InvalidConfig, WeftError
from weft.service.responses.answers import JobAnswer
from weft.wire.terminal import DATA, EOF, EXIT, Frames, frame, window
from weft_client.connection import at


def attach(client: ServiceClient, job: str, note: Callable[[str], None]) -> int:
    """Stay with a job's terminal, or a shell beside it, until that or the job ends; its exit code.

    Waits for the job to run, and connects again if the service goes away meanwhile.
    """
    shown = ""
    while True:
        try:
            answer = client.get(JobAnswer, at("jobs", job))
            if answer.state in ENDED:
                if answer.state != "succeeded" and answer.reason:
                    note(f"{answer.state}: {answer.reason}")
                return exit_code(answer)
            if (line := state_line(answer)) != shown:
                shown = line
                note(line)
            where = "terminal" if answer.pty else "shell"
            code = (
                _connect_once(client, at("jobs", job, where)) if answer.state == "running" else None
            )
        except ServiceUnreachable:
            note(AWAY)
            code = None
        if code is not None:
            return code
        time.sleep(POLL_S)


def _connect_once(client: ServiceClient, path: str) -> int | None:
    """Connect once; the exit code, or None if the connection ended before the job."""
    try:
        talk = client.talk(path)
    except RequestRefused as error:
        if error.status == HTTPStatus.CONFLICT and "while it is" in error.what:
            return None  # its terminal is not there yet, or not any more
        raise
    try:
        with _raw_terminal():
            return _carry(talk)
    except OSError:
        return None
    finally:
        talk.close()


def _carry(talk: Talk) -> int | None:
    """Bytes both ways until the job's process ends."""
    frames, keys = Frames(), 0
    # Not epoll, which takes no files: keys may come from one, or from /dev/null.
    with selectors.PollSelector() as select, _resizes() as resized:
        select.register(talk, selectors.EVENT_READ)
        select.register(keys, selectors.EVENT_READ)
        select.register(resized, selectors.EVENT_READ)
        _tell_size(talk)
        while True:
            ready = {key.fileobj for key, _ in select.select(0.0 if talk.pending else None)}
            if resized in ready:
                resized.recv(1 << 10)
                _tell_size(talk)
            if keys in ready:
                typed = os.read(keys, 1 << 15)
                talk.send(frame(DATA, typed) if typed else frame(EOF))
                if not typed:
                    select.unregister(keys)
            if talk in ready or talk.pending:
                try:
                    heard = talk.receive()
                except EOFError:
                    return None
                for kind, payload in frames.feed(heard):
                    if kind == EXIT:
                        code = int(payload)
                        return code if code >= 0 else 128 - code
                    _print(payload)


def _print(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the job, Ctrl-C too; the terminal is as before afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _resizes() -> Iterator[socket.socket]:
    """Readable whenever the size of this window has changed.

    A handler of its own would not do: a signal that comes just before a wait does not end it.
    """
    changed, changes = socket.socketpair()
    with changed, changes:
        changes.setblocking(False)
        other = signal.set_wakeup_fd(changes.fileno(), warn_on_full_buffer=False)
        before: Any = signal.signal(signal.SIGWINCH, lambda *_: None)
        try:
            yield changed
        finally:
            signal.signal(signal.SIGWINCH, before)
            signal.set_wakeup_fd(other)


def _tell_size(talk: Talk) -> None:
    try:
        size = os.get_terminal_size(0)  # not by COLUMNS, which does not change with the window
    except OSError:
        size = shutil.get_terminal_size()
    talk.send(window(size.lines, size.columns))


class Forwarding:
    """Listens here from the moment it is made; a thread a connection.

    With `local` None on the job's port, or on any other where that is taken: by the job itself, if
    it runs on this machine.
    """

    def __init__(
        self,
        client: ServiceClient,
        job: str,
        port: int,
        local: int | None,
        say: Callable[[str], None],
    ) -> None:
        self._client, self._path, self._say = client, at("jobs", job, "ports", str(port)), say
        try:
            self._listener = _listen(port) if local is None else _listen_on(local)
        except (OSError, OverflowError) as error:
            raise InvalidConfig(
                f"cannot listen on port {local} here: {error}", hint="choose another with --local"
            ) from error
        self.local: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Carry connections until someone ends us."""
        with self._listener:
            while True:
                conversation, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(conversation,), daemon=True).start()

    def _one(self, conversation: socket.socket) -> None:
        with conversation:
            try:
                talk = self._client.talk(self._path)
            except WeftError as error:
                self._say(f"a connection was refused: {error.what}")
                return
            with suppress(OSError, EOFError):
                _carry_bytes(conversation, talk)
            talk.close()


def _listen(wanted: int) -> socket.socket:
    """On this port, or on any if it is taken."""
    try:
        return _listen_on(wanted)
    except OSError:
        return _listen_on(0)


def _listen_on(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def _carry_bytes(conversation: socket.socket, talk: Talk) -> None:
    """Bytes both ways until both sides have said all."""
    with selectors.DefaultSelector() as select:
        select.register(conversation, selectors.EVENT_READ)
        select.register(talk, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in select.select(0.0 if talk.pending else None)}
            if conversation in ready:
                part = conversation.recv(1 << 16)
                if part:
                    talk.send(part)
                else:
                    talk.finish()
                    select.unregister(conversation)
            if talk in ready or talk.pending:
                conversation.sendall(talk.receive())
