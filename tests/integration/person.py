"""A person at a terminal: types commands, sees what they print, resizes the window, leaves."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.waiting import LIMIT_S


class Person:
    """Somebody at a terminal who types a command and sees what it prints."""

    def __init__(self, url: str, *words: str, secret: str = "", cwd: Path) -> None:
        master, slave = pty.openpty()
        self._master = master
        self.seen = ""
        self.resize(24, 80)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # as activated
                "WEFT_URL": url,
                "WEFT_TOKEN": secret,
                "SHELL": "/bin/bash",
                "TERM": "xterm",
                "NO_COLOR": "1",
            },
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def sees(self, pattern: str) -> str:
        """Wait for it to be printed; what comes up to it is taken off the screen."""
        end = time.monotonic() + LIMIT_S
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < end, f"{pattern!r} is not in {self.seen!r}"
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self._master, 65_536).decode(errors="replace")
                except OSError:
                    assert re.search(pattern, self.seen), f"{pattern!r} is not in {self.seen!r}"
        self.seen = self.seen[match.end() :]
        return match[0]

    def leaves(self) -> int:
        """Its exit code, however much is still printed."""
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._master, 65_536).decode(errors="replace")
                except OSError:
                    time.sleep(0.1)
        return self.process.returncode

    def drain(self) -> None:
        """Read what is left on the screen."""
        try:
            while select.select([self._master], [], [], 0.1)[0]:
                self.seen += os.read(self._master, 65_536).decode(errors="replace")
        except OSError:  # how the end of a terminal is told
            return

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def person(
    client: httpx.Client | str, *words: str, cwd: Path, secret: str = ""
) -> Iterator[Person]:
    """Somebody who has typed `weft` and these words; gone in the end."""
    url = client if isinstance(client, str) else str(client.base_url).rstrip("/")
    someone = Person(url, *words, secret=secret, cwd=cwd)
    try:
        yield someone
    finally:
        someone.close()
