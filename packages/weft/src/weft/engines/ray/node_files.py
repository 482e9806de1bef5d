"""The service's files on one node: what is new, what is there, and pieces of them.

Jobs write here: no link is followed, holes are left out, and no answer is large, whatever they
leave.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from weft.engines.machine.artifacts import FILE, FOLDER, MOST_SEEN, MOST_TEXT, walk_files
from weft.frozen import frozen
from weft.wire.attempt import CHANGE, EVENTS, SPEC
from weft.wire.doors import REQUEST
from weft.wire.sleep import SLEEP

MOST = 4 << 20  # bytes of one file in one answer
MOST_NEWS = 4 * MOST  # bytes of one folder in one answer
MOST_NAMED = 1000  # files of one folder of which there may be news
WHOLE = 64 << 10  # files up to this size are sent whole when they change
GROWING = (".jsonl", ".log")
# Written by the service alone: what is here is never older.
NOT_TOLD = {SPEC, CHANGE, SLEEP, REQUEST}
PIECES = ".pieces"  # begins the name of a file that is being written


@frozen
class ServicePaths:
    """The service's paths on this node; `own` is None where they are shared."""

    root: Path
    own: Path | None

    def place(self, path: Path) -> Path:
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

    def write_piece(self, path: Path, offset: int, body: bytes) -> None:
        """A piece of a file that is not there before `finish`; that at 0 begins it."""
        here = self.place(path)
        here.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        begins = os.O_TRUNC if offset == 0 else 0
        handle = os.open(here.with_name(PIECES), os.O_WRONLY | os.O_CREAT | begins, 0o600)
        try:
            os.pwrite(handle, body, offset)
        finally:
            os.close(handle)

    def finish(self, path: Path, size: int, at: int, mode: int) -> None:
        """Put a file that was written in pieces in its place."""
        place_file(self.place(path).with_name(PIECES), self.place(path), size, at, mode)

    def changed_files(self, folder: Path, have: Mapping[str, Sequence[int]]) -> list[list[Any]]:
        """`[name, inode, offset, time, bytes]` of files that changed, given what of each is known.

        `have` maps a name to inode, bytes and time of change. A file that only grew is sent from
        where it was known; another one from its beginning. Inode 0 stands for the same file. The
        agent's events come first; of what else a job puts there, some is left out.
        """
        news: list[list[Any]] = []
        left = MOST_NEWS
        for name, facts in _files_in(self.place(folder)):
            inode, known, at = have.get(name, (0, 0, 0))
            same = inode in (0, facts.st_ino) and facts.st_size >= known
            grows = name.endswith(GROWING)
            offset = known if same and grows else 0
            if same and (facts.st_size == known if grows else facts.st_mtime_ns == at):
                continue
            if left <= 0:
                break
            most = min(left, MOST if grows else WHOLE)
            with suppress(OSError):  # gone meanwhile, or nothing that may be read
                body = _read_at(self.place(folder) / name, offset, most)
                news.append([name, facts.st_ino, offset, facts.st_mtime_ns, body])
                left -= len(body)
        return news

    def list_files(self, folder: Path) -> list[list[Any]]:
        """`[relative path, bytes, time of change in ns, mode, bytes without holes]` of its files.

        Those below it, too. Without those whose name begins with a dot: locks, and what is being
        written. OSError if there are too many, or one that cannot be named.
        """
        files: list[list[Any]] = []
        try:
            top = os.open(self.place(folder), FOLDER & ~os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return []
        left, text = [MOST_SEEN], 0
        try:
            for path, facts in walk_files(top, PurePosixPath(), left, hidden=False):
                if facts is None:
                    raise OSError(f"{path!r:.100} is too deep, closed, or has no fit name")
                if not stat.S_ISREG(facts.st_mode):
                    continue
                data = min(facts.st_size, facts.st_blocks * 512)
                mode = stat.S_IMODE(facts.st_mode) & 0o777
                files.append([path, facts.st_size, facts.st_mtime_ns, mode, data])
                text += len(path)
        finally:
            os.close(top)
        if left[0] < 0 or text > MOST_TEXT:
            raise OSError(f"more than {MOST_SEEN:,} files, or their names are too long")
        return sorted(files)

    def read(self, path: Path, offset: int, most: int) -> list[Any] | None:
        """The next piece of a file's data, `[where it begins, bytes, inode]`; None if it is gone.

        Holes before it are left out: at the file's end the piece is empty and begins there.
        """
        try:
            return read_data(self.place(path), offset, most)
        except FileNotFoundError:
            return None

    def _move(self, body: Any) -> Any:
        """A description with every path of the state folder as it is here."""
        if isinstance(body, dict):
            return {name: self._move(value) for name, value in body.items()}
        if isinstance(body, list):
            return [self._move(value) for value in body]
        if isinstance(body, str) and body.startswith(f"{self.root}/"):
            return str(self.place(Path(body)))
        return body


def place_file(fresh: Path, path: Path, size: int, at: int, mode: int) -> None:
    """Give a file that was written its size, time and mode, and then its name."""
    with fresh.open("ab") as out:
        out.truncate(size)
        os.fchmod(out.fileno(), mode)
    os.utime(fresh, ns=(at, at))
    fresh.replace(path)


def read_data(path: Path, offset: int, most: int) -> list[Any]:
    """The next data of a plain file, `[where it begins, bytes, inode]`, without holes."""
    handle = _open_plain(path)
    try:
        facts = os.fstat(handle)
        if offset >= facts.st_size:
            return [facts.st_size, b"", facts.st_ino]
        try:
            start = os.lseek(handle, offset, os.SEEK_DATA)
            end = os.lseek(handle, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a hole until its end
                raise
            return [facts.st_size, b"", facts.st_ino]
        return [start, os.pread(handle, min(most, end - start), start), facts.st_ino]
    finally:
        os.close(handle)


def _read_at(path: Path, offset: int, most: int) -> bytes:
    handle = _open_plain(path)
    try:
        return os.pread(handle, most, offset)
    finally:
        os.close(handle)


def _open_plain(path: Path) -> int:
    handle = os.open(path, FILE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path.name!r:.100} is no plain file")
    return handle


def _files_in(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Its plain files: the agent's events, and then the first of the others by name."""
    names = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for _, entry in zip(range(MOST_SEEN), entries, strict=False):
            if entry.name not in NOT_TOLD and not entry.name.startswith("."):
                names.append(entry.name)
    names.sort(key=lambda name: (name != EVENTS, name))
    for name in names[:MOST_NAMED]:
        with suppress(OSError):
            facts = (folder / name).lstat()
            if stat.S_ISREG(facts.st_mode) and name.isprintable():
                yield name, facts
