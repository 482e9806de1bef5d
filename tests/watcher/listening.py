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
from pathlib import Path

from tests.waiting import LIMIT_S
from weft.base.messages import Counted, from_rank
from weft.node.ranks.process import watcher_variables

GOODBYE = b"goodbye"


@dataclass
class Ran:
    """How a program ended, what it printed, and what was counted in it."""

    code: int
    out: str
    err: str
    counted: list[Counted]

    @property
    def last(self) -> Counted:
        """The last word."""
        return self.counted[-1]


def run(command: Sequence[str], env: Mapping[str, str] | None = None, *, watch: bool = True) -> Ran:
    """The command to its end, with a listener where its agent would be."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "agent.sock"))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(64)
        counted: list[Counted] = []
        readers: list[threading.Thread] = []
        accepting = threading.Thread(target=_accept, args=(listener, counted, readers), daemon=True)
        accepting.start()
        who = {"WEFT_AGENT": path, "WEFT_JOB": "job", "WEFT_ATTEMPT": "3", "OMP_NUM_THREADS": "1"}
        whole = {**os.environ, **who, **(env or {})}
        if watch:
            whole |= watcher_variables(whole.get("PYTHONPATH", ""))
        ran = subprocess.run(
            command, env=whole, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        _say_goodbye(path)
        accepting.join(timeout=LIMIT_S)
        for reader in readers:
            reader.join(timeout=LIMIT_S)
        listener.close()
    return Ran(ran.returncode, ran.stdout, ran.stderr, counted)


def _say_goodbye(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
        last.connect(path)
        last.sendall(GOODBYE)


def run_python(code: str, *options: str, env: Mapping[str, str] | None = None) -> Ran:
    """A program of this Python."""
    return run([sys.executable, *options, "-c", code], env)


def _accept(
    listener: socket.socket, counted: list[Counted], readers: list[threading.Thread]
) -> None:
    while True:
        line, _ = listener.accept()
        if line.recv(len(GOODBYE), socket.MSG_PEEK) == GOODBYE:  # all before it were accepted
            line.close()
            return
        reader = threading.Thread(target=_read, args=(line, counted), daemon=True)
        readers.append(reader)
        reader.start()


def _read(line: socket.socket, counted: list[Counted]) -> None:
    words = from_rank()
    with line:
        while chunk := line.recv(65_536):
            counted += [message for message in words.feed(chunk) if isinstance(message, Counted)]
