"""Files that a job leaves in the folder that its file names, read with no trust in its program.

Below the job's working directory no link is followed, and a file counts only if it is a plain one
that belongs to the user as whom the job runs, so that nothing else can be fetched. What is
left out is counted.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from weft.core.artifacts import FileFacts, FilePiece
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model.job import Job
from weft.frozen import frozen

MOST_FILES, MOST_SEEN, DEEPEST = 10_000, 100_000, 32
MOST_TEXT = 1 << 22  # characters of all paths of a list
CHUNK = 1 << 20
READERS = 4  # files of one service that are read at once
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@frozen
class ArtifactFolder:
    """The folder `inside` the working directory of a job that runs as `uid`.

    With a `volume` no link is followed below that folder either, and only files on `device` count:
    what is elsewhere may be something else on the job's machine.
    """

    workdir: Path
    inside: str
    uid: int
    volume: Path | None = None
    device: int | None = None

    def list_files(self) -> tuple[list[FileFacts], int]:
        """The files in it by path from the working directory, and how many others there are."""
        files: list[FileFacts] = []
        left_out, text = 0, 0
        try:
            with self._open_folder(self.inside) as top:
                for path, facts in walk_files(top, PurePosixPath(self.inside), [MOST_SEEN]):
                    full = len(files) == MOST_FILES or text + len(path) > MOST_TEXT
                    if full or facts is None or not self._is_own(facts):
                        left_out += 1
                        continue
                    text += len(path)
                    files.append(FileFacts(path, facts.st_size, facts.st_mtime))
        except FileNotFoundError:
            pass  # it has not written anything yet
        except OSError:
            left_out += 1  # a link, a file, or a folder of someone else
        return sorted(files, key=lambda each: each.path), left_out

    def read_piece(self, path: str, offset: int, most: int = CHUNK) -> FilePiece:
        """Bytes of a file by its path from the working directory."""
        handle = self._open_file(path)
        try:
            facts = os.fstat(handle)
            return FilePiece(os.pread(handle, most, offset), facts.st_size, facts.st_ino)
        finally:
            os.close(handle)

    def parts_of(self, path: str) -> tuple[str, ...]:
        """The parts of a file's path; InvalidConfig if it is not below the folder."""
        parts = PurePosixPath(path).parts
        inside = PurePosixPath(self.inside).parts
        if ".." in parts or parts[: len(inside)] != inside or len(parts) <= len(inside):
            raise InvalidConfig(
                f"{path[:100]!r} is not in {self.inside!r}", hint="`weft fetch JOB --list`"
            )
        return parts

    def _open_file(self, path: str) -> int:
        parts = self.parts_of(path)
        try:
            with self._open_folder("/".join(parts[:-1])) as folder:
                handle = os.open(parts[-1], FILE, dir_fd=folder)
        except (OSError, ValueError) as error:
            raise UnknownName(f"no file {path[:100]!r}", hint="`weft fetch JOB --list`") from error
        if not self._is_own(os.fstat(handle)):
            os.close(handle)
            raise UnknownName(
                f"{path[:100]!r} is no plain file of the job's user", hint="`weft fetch JOB --list`"
            )
        return handle

    @contextmanager
    def _open_folder(self, inside: str) -> Iterator[int]:
        top = self.volume or self.workdir
        handle = os.open(top, FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in (*self.workdir.relative_to(top).parts, *PurePosixPath(inside).parts):
                below = os.open(part, FOLDER, dir_fd=handle)
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def _is_own(self, facts: os.stat_result) -> bool:
        own = stat.S_ISREG(facts.st_mode) and facts.st_uid == self.uid
        return own and self.device in (None, facts.st_dev)


@dataclass
class FilesHere:
    """Artifacts that this machine has at the same paths: `find` is the folder of a job."""

    find: Callable[[Job], ArtifactFolder]
    _readers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(READERS, "artifacts")
    )

    async def list_files(self, job: Job, attempt: int) -> tuple[list[FileFacts], int]:  # noqa: ARG002 - all attempts have one folder
        """The files that the job has left so far."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: self.find(job).list_files())

    async def read(self, job: Job, attempt: int, path: str, offset: int) -> FilePiece:  # noqa: ARG002
        """Read a piece of one artifact."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._readers, lambda: self.find(job).read_piece(path, offset)
        )


def walk_files(
    folder: int, path: PurePosixPath, left: list[int], depth: int = 0, *, hidden: bool = True
) -> Iterator[tuple[str, os.stat_result | None]]:
    """Paths in a folder and below it, with None for what cannot be read, or has no fit name.

    Not more than are `left`, which is below 0 where there were more. Without `hidden` names that
    begin with a dot are skipped.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if not hidden and entry.name.startswith("."):
                continue
            left[0] -= 1
            if left[0] < 0:
                return
            inner = path / entry.name
            try:
                facts = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(facts.st_mode):
                    yield str(inner), facts if str(inner).isprintable() else None
                    continue
                below = os.open(entry.name, FOLDER, dir_fd=folder) if depth < DEEPEST else None
            except OSError:
                below = None
            if below is None:
                yield str(inner), None
                continue
            try:
                yield from walk_files(below, inner, left, depth + 1, hidden=hidden)
            finally:
                os.close(below)
