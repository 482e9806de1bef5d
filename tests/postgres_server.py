"""A PostgreSQL server for tests: on a socket in a folder of its own, ended with them."""

from __future__ import annotations

import grp
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

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


@contextmanager
def running_server() -> Iterator[Callable[[], str]]:
    """A function that makes a new, empty database and gives its address."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    who = find_user()
    folder = Path(tempfile.mkdtemp(prefix="weft-pg-"))
    if who:
        shutil.chown(folder, **who)
    data, out = folder / "data", folder / "server.log"

    def run(*command: object) -> None:
        words = [str(word) for word in command]
        subprocess.run(words, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)  # type: ignore[call-overload]

    run(binaries / "initdb", "-D", data, "-A", "trust", "-U", "weft", "--no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    run(binaries / "pg_ctl", "-D", data, "-l", out, "-w", "-t", 120, "-o", options, "start")

    def make() -> str:
        name = f"log{next(NUMBERS)}"
        with psycopg.connect(address("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        return address(name)

    def address(name: str) -> str:
        return f"postgresql://weft@/{name}?host={folder}"

    try:
        yield make
    finally:
        run(binaries / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)
