"""Files of the service on a node that does not share its folder: written, read, reported.

Paths are always the service's. Where the state folder is not shared they lie below a folder of
the node's own, and the request of an attempt names that folder instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.frozen import frozen
from weft.wire.attempt import CHANGE, SPEC
from weft.wire.doors import REQUEST
from weft.wire.sleep import SLEEP

MOST = 4 << 20  # bytes of one file in one answer
WHOLE = 64 << 10  # files up to this size are sent whole when they change
GROWING = (".jsonl", ".log")
NOT_TOLD = {
    SPEC,
    CHANGE,
    SLEEP,
    REQUEST,
}  # written by the service alone: what is here is never older


@frozen
class Carried:
    """Where the service's paths are on this node; `own` None where they are the same."""

    root: Path
    own: Path | None

    def place(self, path: Path) -> Path:
        """The same file here."""
        if self.own is None or not path.is_relative_to(self.root):
            return path
        return self.own / path.relative_to(self.root)

    def write(self, path: Path, body: bytes, mode: int) -> None:
        """Whole or not at all; an attempt's description with the paths that hold here."""
        here = self.place(path)
        here.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.name == SPEC:
            body = json.dumps(self._move(json.loads(body))).encode()
        fresh = here.with_name(f".{here.name}.{os.getpid()}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as out:
            out.write(body)
        fresh.replace(here)

    def news(self, folder: Path, have: Mapping[str, Sequence[int]]) -> list[list[Any]]:
        """`[name, inode, offset, time, bytes]` of files that changed, given what of each is known.

        `have` maps a name to inode, bytes and time of change. A file that only grew is sent from
        where it was known; another one from its beginning. Inode 0 stands for the same file.
        """
        news = []
        here = self.place(folder)
        if not here.is_dir():
            return []
        for entry in sorted(here.iterdir()):
            if entry.name in NOT_TOLD or entry.name.startswith(".") or not entry.is_file():
                continue
            stat = entry.stat()
            inode, known, at = have.get(entry.name, (0, 0, 0))
            same = inode in (0, stat.st_ino) and stat.st_size >= known
            grows = entry.suffix in GROWING
            offset = known if same and grows else 0
            if same and (stat.st_size == known if grows else stat.st_mtime_ns == at):
                continue
            body = _piece(entry, offset, MOST if grows else WHOLE)
            news.append([entry.name, stat.st_ino, offset, stat.st_mtime_ns, body])
        return news

    def listing(self, folder: Path) -> list[list[Any]]:
        """`[relative path, bytes, time of change in ns, mode]` of every file below a folder.

        Without those whose name begins with a dot: locks, and what is being written.
        """
        here = self.place(folder)
        files = []
        for at, folders, names in os.walk(here):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                path = Path(at, name)
                if not name.startswith(".") and path.is_file() and not path.is_symlink():
                    stat = path.stat()
                    relative = str(path.relative_to(here))
                    files.append([relative, stat.st_size, stat.st_mtime_ns, stat.st_mode & 0o777])
        return sorted(files)

    def read(self, path: Path, offset: int, most: int) -> bytes:
        """A piece of a file."""
        return _piece(self.place(path), offset, most)

    def _move(self, body: Any) -> Any:
        """The same description with every path of the state folder as it is here."""
        if isinstance(body, dict):
            return {name: self._move(value) for name, value in body.items()}
        if isinstance(body, list):
            return [self._move(value) for value in body]
        if isinstance(body, str) and body.startswith(f"{self.root}/"):
            return str(self.place(Path(body)))
        return body


def _piece(path: Path, offset: int, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(most)
