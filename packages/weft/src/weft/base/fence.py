"""Only one attempt of a job may write its checkpoints.

The file `OWNER` in the checkpoint directory holds the number of the attempt that may. The agent
claims it before it starts the ranks; a trainer renames a checkpoint only inside `held`. Both take
the same lock, so a claim cannot slip in between the look and the rename.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import Fenced, WireError

OWNER = "OWNER"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def claim(directory: str | os.PathLike[str], attempt: int) -> None:
    """Let `attempt`, and no earlier one, write in `directory`; it is made if it is not there.

    Claiming again for the same attempt changes nothing. A later attempt's claim stands: then
    `Fenced` is raised.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        present = owner(folder)
        if present is not None and present > attempt:
            raise Fenced(f"{folder} belongs to attempt {present}; attempt {attempt} is too late")
        if present != attempt:
            _write(folder, attempt)


def owner(directory: str | os.PathLike[str]) -> int | None:
    """The attempt that may write in `directory`; None if it is unclaimed."""
    file = Path(directory) / OWNER
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise WireError(f"{file} holds {text[:50]!r}, expected the number of an attempt") from error


@contextmanager
def held(directory: str | os.PathLike[str], attempt: int) -> Iterator[None]:
    """Inside, `attempt` is the owner and stays it; `Fenced` is raised if it is not.

    An unclaimed directory may be written by anyone: the script runs alone.
    """
    folder = Path(directory)
    with _lock(folder):
        present = owner(folder)
        if present is not None and present != attempt:
            raise Fenced(f"{folder} belongs to attempt {present}, this is attempt {attempt}")
        yield


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    # The directory itself is locked: no file to leave behind, and the kernel drops it on death.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(folder: Path, attempt: int) -> None:
    fresh = folder / f".{OWNER}.{os.getpid()}"
    try:
        with fresh.open("w") as out:
            out.write(f"{attempt}\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(folder / OWNER)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not (folder / OWNER).exists():
            raise
        _overwrite(folder / OWNER, attempt)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _overwrite(file: Path, attempt: int) -> None:
    """In place, for a disk without room for a new file: a few bytes in a block that is there.

    Without it a job could not even go on from the checkpoint it has.
    """
    handle = os.open(file, os.O_WRONLY)
    try:
        os.write(handle, f"{attempt}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def is_url(place: object) -> bool:
    """Return true if checkpoints are in an object store (`s3://bucket/run`), not in a folder."""
    return _URL.match(str(place)) is not None
