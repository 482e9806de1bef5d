"""Files that a job leaves in the folder that its file names, read with no trust in its program.

Below the job's working directory no link is followed, and a file counts only if it is a plain one
that belongs to the user as whom the job runs, so that nothing else can be fetched. What is
left out is counted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from weft.core.errors import InvalidConfig, UnknownName
from weft.frozen import frozen
from weft.service.responses.watch import Artifact

MOST_FILES, MOST_SEEN, DEEPEST = 10_000, 100_000, 32
CHUNK = 1 << 18
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@frozen
class ArtifactFolder:
    """The folder `inside` the working directory of a job that runs as `uid`."""

    workdir: Path
    inside: str
    uid: int

    def list_files(self) -> tuple[list[Artifact], int]:
        """The files in it by path from the working directory, and how many others there are."""
        files: list[Artifact] = []
        left_out = 0
        try:
            with self._open_folder(self.inside) as top:
                for path, facts in _walk(top, PurePosixPath(self.inside), [MOST_SEEN]):
                    if facts is None or not self._is_own(facts) or len(files) == MOST_FILES:
                        left_out += 1
                        continue
                    files.append(Artifact(path=path, size=facts.st_size, modified=facts.st_mtime))
        except FileNotFoundError:
            pass  # it has not written anything yet
        except OSError:
            left_out += 1  # a link, a file, or a folder of someone else
        return sorted(files, key=lambda each: each.path), left_out

    def open_file(self, path: str) -> int:
        """A handle to read a file by its path from the working directory."""
        parts = PurePosixPath(path).parts
        inside = PurePosixPath(self.inside).parts
        if ".." in parts or parts[: len(inside)] != inside or len(parts) <= len(inside):
            raise InvalidConfig(
                f"{path[:100]!r} is not in {self.inside!r}", hint="`weft fetch JOB --list`"
            )
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
        handle = os.open(self.workdir, FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in PurePosixPath(inside).parts:
                below = os.open(part, FOLDER, dir_fd=handle)
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def _is_own(self, facts: os.stat_result) -> bool:
        return stat.S_ISREG(facts.st_mode) and facts.st_uid == self.uid


def _walk(
    folder: int, path: PurePosixPath, left: list[int], depth: int = 0
) -> Iterator[tuple[str, os.stat_result | None]]:
    """Paths in a folder and below it, with None for what cannot be read, or has no fit name."""
    with os.scandir(folder) as entries:
        for entry in entries:
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
                yield from _walk(below, inner, left, depth + 1)
            finally:
                os.close(below)
