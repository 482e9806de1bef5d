"""A PostgreSQL server for tests: on a socket in a folder of its own, ended with them."""

from __future__ import annotations

import grp
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.waiting import wait_until

NUMBERS = itertools.count()


def find_binaries() -> Path | None:
    """Where the server's programs are: the newest version that is installed."""
    binary = shutil.which("initdb")
    if binary is not None:
        return Path(binary).parent
    versions = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    newest = max(versions, key=lambda path: int(path.parts[4]), default=None)
    return None if newest is None else newest.parent


def find_user() -> dict[str, str]:
    """Whom the server runs as where we are root, which it refuses to run as."""
    if os.getuid() != 0:
        return {}
    try:
        group = grp.getgrgid(pwd.getpwnam("postgres").pw_gid).gr_name
    except KeyError:
        pytest.skip("PostgreSQL needs a user `postgres` here: apt-get install postgresql")
    return {"user": "postgres", "group": group}


class PostgresServer:
    """A server that was begun in a folder of its own; called, it makes an empty database."""

    def __init__(self, binaries: Path, folder: Path, who: dict[str, str]) -> None:
        self._binaries, self._folder, self._who = binaries, folder, who
        self._run("initdb", "-A", "trust", "-U", "weft", "--no-sync")
        self.begin()

    def _run(self, program: str, *options: object) -> None:
        words = [str(self._binaries / program), "-D", f"{self._folder}/data", *map(str, options)]
        subprocess.run(words, check=True, cwd=self._folder, stdout=subprocess.DEVNULL, **self._who)  # type: ignore[call-overload]

    def __call__(self) -> str:
        name = f"log{next(NUMBERS)}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        return self._address(name)

    def _address(self, name: str) -> str:
        return f"postgresql://weft@/{name}?host={self._folder}"

    def begin(self) -> None:
        """Begin, again after a kill: once the memory of what was killed is free."""
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder} -c fsync=off"
        words = ("-l", f"{self._folder}/server.log", "-w", "-t", 120, "-o", options, "start")

        def began() -> bool:
            with suppress(subprocess.CalledProcessError):
                self._run("pg_ctl", *words)
                return True
            return False

        wait_until(began, "the server does not begin")

    def end(self) -> None:
        """Stop at once; what was killed before is gone already."""
        self.signal(signal.SIGCONT)
        with suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def kill(self) -> None:
        """Kill every process, as a machine does that goes down."""
        pids = self.signal(signal.SIGKILL)
        wait_until(lambda: not any(map(_is_alive, pids)))
        (self._folder / "data" / "postmaster.pid").unlink()

    def signal(self, number: signal.Signals) -> list[int]:
        """Send a signal to the server and all its sessions, the server first."""
        file = self._folder / "data" / "postmaster.pid"
        if not file.exists():
            return []
        server = int(file.read_text().split()[0])
        pids = [
            server,
            *map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split()),
        ]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids


def _is_alive(pid: int) -> bool:
    """True until it has ended, also if its parent never asks about that."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server of the version that is installed; skips the test if there is none."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    who = find_user()
    folder = Path(tempfile.mkdtemp(prefix="weft-pg-"))
    if who:
        shutil.chown(folder, **who)
    server = PostgresServer(binaries, folder, who)
    try:
        yield server
    finally:
        server.end()
        shutil.rmtree(folder)
