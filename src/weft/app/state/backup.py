"""Copies of a state folder's log and settings, taken while the service runs, and brought back.

Output and checkpoints of jobs are not part: they are large, and belong to the jobs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from weft.app.state.folder import LOG, PRIVATE_FILE, PRIVATE_FOLDER, SETTINGS, make_private
from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft.store.sqlite import own
from weft.version import __version__

MANIFEST = "backup.json"


@frozen
class Backup:
    """What a backup holds: the log up to event `last`, and the SHA-256 of every file."""

    weft: str
    at: float
    last: int
    files: dict[str, str]


def make_backup(state: Path, target: Path) -> Backup:
    """Copy the log and the settings in `state` to the new folder `target`; whole or not at all."""
    if not (state / LOG).is_file():
        raise InvalidConfig(f"{state} holds no log", hint="name the service's folder with --state")
    if target.exists():
        raise InvalidConfig(f"{target} is there already", hint="name a new folder")
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fresh.mkdir(mode=PRIVATE_FOLDER, parents=True)
        last = _copy_log(state / LOG, fresh / LOG)
        for name in SETTINGS:
            if (state / name).is_file():
                _copy(state / name, fresh / name)
        files = {path.name: _digest(path) for path in sorted(fresh.iterdir())}
        made = Backup(__version__, time.time(), last, files)
        _write(fresh / MANIFEST, json.dumps(asdict(made), indent=1).encode())
        fresh.rename(target)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise InvalidConfig(f"cannot write the backup {target}: {error.strerror}") from error
    except sqlite3.Error as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise InvalidConfig(
            f"{state / LOG} cannot be copied: {error}", hint="`weft state check` says more"
        ) from error
    return made


def restore_backup(source: Path, state: Path) -> tuple[Backup, list[str]]:
    """Bring a backup back into `state`, where there must be no log; settings there are kept.

    Returns the backup and the names of the files that were brought back.
    """
    made = read_backup(source)
    make_private(state)
    for name in (LOG, f"{LOG}-wal", f"{LOG}-journal"):
        if (state / name).exists() and (state / name).stat().st_size:
            raise InvalidConfig(
                f"{state / name} is there, and nothing is written over",
                hint="stop the service and move it away first; keep it until all is well",
            )
    owned = own(state / LOG)
    try:
        if not (state / LOG).exists() or not (state / LOG).stat().st_size:
            (state / LOG).unlink(missing_ok=True)
        missing = [name for name in made.files if not (state / name).exists()]
        for left in (f"{LOG}-wal", f"{LOG}-shm"):  # of the log before
            (state / left).unlink(missing_ok=True)
        for name in missing:
            _copy(source / name, state / name)
    finally:
        os.close(owned)
    return made, missing


def read_backup(source: Path) -> Backup:
    """What a backup says about itself; InvalidConfig unless every file is as it was written."""
    try:
        made = Backup(**json.loads((source / MANIFEST).read_text()))
        wrong = [name for name, digest in made.files.items() if _digest(source / name) != digest]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidConfig(
            f"{source} is no backup: {error}", hint="`weft state backup` makes one"
        ) from error
    if LOG not in made.files or any(Path(name).name != name for name in made.files):
        raise InvalidConfig(f"{source} is no backup: {MANIFEST} names other files than it may")
    if wrong:
        raise InvalidConfig(
            f"{source / wrong[0]} has changed since the backup", hint="take another backup"
        )
    return made


def _copy_log(source: Path, target: Path) -> int:
    """An online copy: appending is not held up, and the copy is of one moment."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    reading = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    with closing(reading), closing(sqlite3.connect(target)) as copy:
        reading.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, with nothing beside it
        (damage,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        row = copy.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return int(row[0]) if row else 0


def _copy(source: Path, target: Path) -> None:
    _write(target, source.read_bytes())


def _write(target: Path, data: bytes) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
