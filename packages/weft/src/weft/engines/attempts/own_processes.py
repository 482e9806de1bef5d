"""Processes of our own beside attempts: agents, the warm server, stage-token coordinators.

A coordinator outlives the engine, as agents do, because running jobs talk to it; the next engine
finds it by pid and start time. One that died is started again: ranks run freely meanwhile.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from weft.engines.machine.job_environment import filter_environment
from weft.wire.attempt import read_json, short_path
from weft.wire.memory_waits import SOCKET
from weft.wire.processes import alive


def spawn(module: Sequence[str], log: Path, env: Mapping[str, str]) -> int:
    """`python -m MODULE ARGS` in a session of its own, its output in `log`; its pid."""
    return spawn_command([sys.executable, "-P", "-m", *module], log, env)


def spawn_command(command: Sequence[str], log: Path, env: Mapping[str, str]) -> int:
    """Any command in a session of its own, its output in `log`; its pid."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        command[0],
        list(command),
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def reap(pid: int) -> bool:
    """True if a child has ended; it is then no zombie any more."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


ASK_S = 2.0
AGAIN_S = 30.0


class WarmServer:
    """One server process; it may not be ready yet, or may have died: then nothing is forked."""

    def __init__(
        self, path: str, errors: Path, modules: Sequence[str], env: Mapping[str, str]
    ) -> None:
        self._path, self._errors, self._modules, self._env = path, errors, modules, env
        self._start()

    def _start(self) -> None:
        self._began, me = time.monotonic(), str(os.getpid())
        Path(self._path).unlink(missing_ok=True)
        with self._errors.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 - our own server
                [sys.executable, "-m", "weft.node.warm", self._path, me, *self._modules],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._env,
            )

    def restart_if_dead(self) -> None:
        """Start it again if it has died, but not over and over."""
        if self._process.poll() is not None and time.monotonic() - self._began > AGAIN_S:
            self._start()

    @property
    def ready(self) -> bool:
        """True if it has imported everything and listens."""
        return self._process.poll() is None and Path(self._path).exists()

    def fork(self, folder: Path) -> bool:
        """Have an agent forked for the attempt in `folder`; False if it must be started cold."""
        if not self.ready:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(ASK_S)
                line.connect(self._path)
                line.sendall(f"{folder}\n".encode())
                return line.recv(8) == b"ok\n"
        except OSError:
            # It may or may not have forked. Two agents do no harm: one of them gets the claim.
            return False

    def close(self) -> None:
        """End it; the agents it forked go on."""
        self._process.kill()
        self._process.wait()
        Path(self._path).unlink(missing_ok=True)


log = logging.getLogger(__name__)


@dataclass(slots=True)
class Coordinators:
    """Token coordinators of one engine, below its folder `root`."""

    root: Path
    _used: set[str] = field(default_factory=set)
    _children: dict[str, int] = field(default_factory=dict)

    def socket(self, discipline: str) -> str:
        """The socket of the coordinator of `discipline`, which is started if it does not run."""
        self._used.add(discipline)
        self._ensure(discipline)
        return self._path(discipline)

    def restart_dead(self) -> None:
        """Start those again that have died."""
        self._children = {
            discipline: pid for discipline, pid in self._children.items() if not reap(pid)
        }
        for discipline in self._used:
            self._ensure(discipline)

    def end(self) -> None:
        """End all of them, also those of an engine before this one; for when no job is left."""
        for record in self.root.glob("tokens-*.json"):
            if (pid := _named_in(record)) is not None:
                terminate(pid)
        for pid in self._children.values():
            if not reap(pid):
                terminate(pid)
        self._used.clear()

    def pid(self, discipline: str) -> int | None:
        return _named_in(self._record(discipline))

    def _path(self, discipline: str) -> str:
        return short_path(self.root / f"tokens-{_word(discipline)}.sock")

    def _record(self, discipline: str) -> Path:
        return self.root / f"tokens-{_word(discipline)}.json"

    def _ensure(self, discipline: str) -> None:
        """Have one running; it writes its record itself, and a second one sees that and leaves."""
        if discipline in self._children or self.pid(discipline) is not None:
            return
        arguments = ["weft.node.tokens", self._path(discipline), "--discipline", discipline]
        arguments += ["--state", str(self.root), "--record", str(self._record(discipline))]
        log_file = self.root / f"tokens-{_word(discipline)}.log"
        pid = spawn(arguments, log_file, filter_environment())
        self._children[discipline] = pid
        log.info("coordinator=%s pid=%d started", discipline, pid)


@dataclass(slots=True)
class MemoryBook:
    """The process that keeps the book of device memory of the engine whose folder is `root`.

    It outlives the engine, as jobs do that wait for memory; the next engine takes it over.
    """

    root: Path
    _child: int | None = None

    @property
    def path(self) -> str:
        """Its socket."""
        return short_path(self.root / SOCKET)

    @property
    def pid(self) -> int | None:
        return _named_in(self._record)

    @property
    def _record(self) -> Path:
        return self.root / "memory-book.json"

    def ensure(self) -> None:
        """Have it running; it ends by itself once this has not been asked for a while."""
        with suppress(FileNotFoundError):
            os.utime(self._record)
        if self._child is not None and reap(self._child):
            self._child = None
        if self._child is None and self.pid is None:
            arguments = ["weft.node.memory", self.path, "--state", str(self.root)]
            arguments += ["--record", str(self._record)]
            self._child = spawn(arguments, self.root / "memory-book.log", filter_environment())
            log.info("book=%s pid=%d started", self.path, self._child)

    def end(self) -> None:
        """End it; for when no job is left."""
        if (pid := self.pid) is not None:
            terminate(pid)
        if self._child is not None and not reap(self._child):
            terminate(self._child)
        self._child = None


def _named_in(record: Path) -> int | None:
    """The coordinator that wrote a record, if it runs."""
    body = read_json(record)
    if body is not None and alive(body["pid"], body["began"]):
        pid: int = body["pid"]
        return pid
    return None


def terminate(pid: int) -> None:
    """Ask a process to end."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _word(discipline: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in discipline)
