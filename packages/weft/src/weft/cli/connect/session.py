"""A person's terminal, connected to a job's: keys go there, what is printed comes here."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from types import FrameType
from typing import Any

from weft.cli.connect.client import Client, Refused, Unreachable, at
from weft.cli.connect.duplex import Talk
from weft.cli.connect.follow import AWAY, POLL_S, exit_code, state_line
from weft.cli.view.words import ENDED
from weft.service.responses.answers import JobAnswer
from weft.wire.terminal import DATA, EOF, EXIT, Frames, frame, window


def attach(client: Client, job: str, note: Callable[[str], None]) -> int:
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
            code = _look(client, at("jobs", job, where)) if answer.state == "running" else None
        except Unreachable:
            note(AWAY)
            code = None
        if code is not None:
            return code
        time.sleep(POLL_S)


def _look(client: Client, path: str) -> int | None:
    """Connect once; the exit code, or None if the connection ended before the job."""
    try:
        talk = client.talk(path)
    except Refused as error:
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
    with selectors.PollSelector() as select, _resizes(talk):
        select.register(talk, selectors.EVENT_READ)
        select.register(keys, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in select.select(0.0 if talk.pending else None)}
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
def _resizes(talk: Talk) -> Iterator[None]:
    """Tell the job the size of this window, now and whenever it changes."""

    def tell(number: int = 0, at: FrameType | None = None) -> None:  # noqa: ARG001 - a handler's
        try:
            size = os.get_terminal_size(0)  # not by COLUMNS, which does not change with the window
        except OSError:
            size = shutil.get_terminal_size()
        talk.send(window(size.lines, size.columns))

    tell()
    before: Any = signal.signal(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
