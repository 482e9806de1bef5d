"""Which ports of this machine processes listen on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from weft.wire.processes import PROC

LISTENING = "0A"  # as /proc/net/tcp says it
LOOPBACK = {"tcp": "127.0.0.1", "tcp6": "::1"}


def find_port(pids: Collection[int], port: int) -> tuple[str, int] | None:
    """Where one of these processes listens on `port`; None if none does."""
    own = {inode for pid in pids for inode in _open_sockets(pid)}
    for family, host in LOOPBACK.items():
        if any(inode in own for inode in _listeners(family, port)):
            return host, port
    return None


def _listeners(family: str, port: int) -> Iterator[str]:
    with suppress(OSError):
        for line in (PROC / "net" / family).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def _open_sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):  # gone meanwhile
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]
