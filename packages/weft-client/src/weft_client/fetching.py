"""Copies of files that a job left. Their names are a program's, so none may lead elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

from weft_client.connection import Connection, at
from weft_client.errors import Misused

COPIED = 1 << 20


def fetch_files(
    connection: Connection, job: str, names: Iterable[str], path: str, to: Path
) -> list[Path]:
    """Copy the files of these names that are `path`, or below it, into a folder."""
    wanted = PurePosixPath(path).parts
    chosen = [name for name in names if PurePosixPath(name).parts[: len(wanted)] == wanted]
    if not chosen and path:
        raise Misused(
            f"job {job} has left no {path!r}", "`weft fetch JOB --list` shows what it has"
        )
    return [_fetch(connection, job, name, place_of(to, name)) for name in chosen]


def place_of(folder: Path, name: str) -> Path:
    """Where a file of this name belongs; Misused if that is not below the folder."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/") or not _is_plain(name):
        raise Misused(f"{name!r} is no path of a file below a folder", "it was not copied")
    place = folder
    for part in parts[:-1]:
        place /= part
        if place.is_symlink():
            raise Misused(f"{place} is a link", "copy into another folder: --to DIR")
    return place / parts[-1]


def _is_plain(name: str) -> bool:
    windows = PureWindowsPath(name)
    return name.isprintable() and (os.name != "nt" or not (windows.drive or "\\" in name))


def _fetch(connection: Connection, job: str, name: str, place: Path) -> Path:
    """A copy that is whole or not there; a link in its place is replaced and not followed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=".weft-", dir=place.parent)
    try:
        route = at("jobs", job, "artifacts", "file")
        with (
            os.fdopen(handle, "wb") as file,
            connection.open("GET", route, query={"path": name}) as answer,
        ):
            shutil.copyfileobj(answer, file, COPIED)
        Path(part).replace(place)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    return place
