"""Reaching into attempts on this machine: their terminals, and ports that they listen on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from weft.core.model.job import JobId
from weft.frozen import frozen
from weft.wire.attempt import SHELLS, TAG, TERMINAL, folder_of, short_path
from weft.wire.processes import PROC, descendants, find_tagged

LISTENING = "0A"  # as /proc/net/tcp says it
LOOPBACK = {"tcp": "127.0.0.1", "tcp6": "::1"}


@frozen
class LocalSessions:
    """Of the attempts below `state`; `pids` tells each rank's process."""

    state: Path
    pids: Callable[[JobId, int], Mapping[int, int]]

    def terminal(self, job: JobId, attempt: int) -> Path | None:
        """The socket of an attempt's terminal; None while there is none."""
        return self._find(job, attempt, TERMINAL)

    def shell(self, job: JobId, attempt: int) -> Path | None:
        """The socket that gives a shell beside an attempt; None while there is none."""
        return self._find(job, attempt, SHELLS)

    def _find(self, job: JobId, attempt: int, name: str) -> Path | None:
        path = Path(short_path(folder_of(self.state, job, attempt) / name))
        return path if path.is_socket() else None

    def find_port(self, job: JobId, attempt: int, port: int) -> tuple[str, int] | None:
        """Where a process of the attempt itself listens on `port`; None if none does."""
        own = self._sockets(job, attempt)
        for family, host in LOOPBACK.items():
            if any(inode in own for inode in _listeners(family, port)):
                return host, port
        return None

    def _sockets(self, job: JobId, attempt: int) -> set[str]:
        """The open sockets of all processes of an attempt, by inode."""
        ranks = [*self.pids(job, attempt).values()]
        tag = str(folder_of(self.state, job, attempt))
        pids = {
            *ranks,
            *find_tagged(TAG, tag),
            *(child for pid in ranks for child in descendants(pid)),
        }
        return {inode for pid in pids for inode in _open_sockets(pid)}


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
