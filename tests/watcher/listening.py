"""An agent's ear: runs a program as an agent would, and keeps what its watchers say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from tests.waiting import LIMIT_S
from weft.base.messages import Counted, Metrics, from_rank
from weft.node.ranks.process import watcher_variables

GOODBYE = b"goodbye"


@dataclass
class Ran:
    """How a program ended, what it printed, and what was counted in it."""

    code: int
    out: str
    err: str
    counted: list[Counted]
    metrics: list[Metrics]

    @property
    def measured(self) -> list[tuple[str, float, float | None]]:
        """Name, step and value of each that the program reported, oldest first."""
        return [
            row
            for each in self.metrics
            for row in zip(each.names, each.steps, each.values, strict=True)
        ]

    @property
    def last(self) -> Counted:
        """The last word."""
        return self.counted[-1]


class Listener:
    """What is said to an agent's socket, in order and whole once it is left.

    Each message has a connection of its own. They are taken in the order in which they were made,
    so all that ended programs said has been read when the goodbye is.
    """

    def __init__(self, path: Path) -> None:
        self.heard: list[bytes] = []
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._reading = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._socket.bind(self._path)
        self._socket.listen(socket.SOMAXCONN)  # a watcher does not wait where there is no room
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
            last.connect(self._path)
            last.sendall(GOODBYE)
        self._reading.join(timeout=LIMIT_S)
        self._socket.close()
        assert not self._reading.is_alive(), "a program has kept its line to the agent"

    def _read(self) -> None:
        while True:
            line, _ = self._socket.accept()
            with line:
                words = b"".join(iter(partial(line.recv, 65_536), b""))
            if words == GOODBYE:
                return
            self.heard.append(words)


def run(command: Sequence[str], env: Mapping[str, str] | None = None, *, watch: bool = True) -> Ran:
    """The command to its end, with a listener where its agent would be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "agent.sock")
        who = {"WEFT_AGENT": str(path), "WEFT_JOB": "job", "WEFT_ATTEMPT": "3"}
        whole = {**os.environ, **who, "OMP_NUM_THREADS": "1", **(env or {})}
        if watch:
            whole |= watcher_variables(whole.get("PYTHONPATH", ""))
        with Listener(path) as listener:
            ran = subprocess.run(
                command, env=whole, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
    messages = [message for words in listener.heard for message in from_rank().feed(words)]
    counted = [message for message in messages if isinstance(message, Counted)]
    metrics = [message for message in messages if isinstance(message, Metrics)]
    return Ran(ran.returncode, ran.stdout, ran.stderr, counted, metrics)


def run_python(code: str, *options: str, env: Mapping[str, str] | None = None) -> Ran:
    """A program of this Python."""
    return run([sys.executable, *options, "-c", code], env)
