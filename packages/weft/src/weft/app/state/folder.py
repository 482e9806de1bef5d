"""The folder of everything that survives a restart: what is in it, and who may read it.

events.db       the log, its snapshots, and what was set aside
tokens.json     hashes of tokens; quotas.json, webhooks.json: rules and receivers
faults.json     why devices were set aside
devices/        what GPUs did in the last hours, a file for each node
jobs/           a folder for each job: output, checkpoints, what agents write
live/           a mark for each attempt that may run
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.wire.shared_files import PASS

LOG, JOBS, LIVE, DEVICES = "events.db", "jobs", "live", "devices"
SETTINGS = ("tokens.json", "quotas.json", "webhooks.json", "configuration.json", "faults.json")
OURS = frozenset((LOG, JOBS, LIVE, DEVICES, *SETTINGS))
PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600


def make_private(folder: Path) -> None:
    """Make the folder if it is not there; close it and the files in it to other users.

    A folder of other things is left as it is: only what is ours in it is closed. What users of jobs
    walk through stays open to them, for their jobs go on while a service begins.
    """
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        for path in _to_close(folder):
            with suppress(FileNotFoundError):  # a leader that ends beside us removes files
                if not path.is_dir():
                    path.chmod(PRIVATE_FILE)
                elif stat.S_IMODE(path.stat().st_mode) != PASS:
                    path.chmod(PRIVATE_FOLDER)
    except OSError as error:
        raise InvalidConfig(
            f"cannot keep state in {folder}: {error.strerror}", hint="name another --state folder"
        ) from error


def open_to_others(folder: Path) -> list[Path]:
    """The paths in the folder that other users can read or change, the folder itself included."""
    everybody = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH  # to walk through is fine
    return [path for path in _to_close(folder) if _mode_of(path) & everybody]


def check_log_is_there(folder: Path) -> None:
    """Raise InvalidConfig if jobs have been run here, but their log is gone.

    A service that started over beside them would end those that run, and give their ids again.
    """
    log = folder / LOG
    size = log.stat().st_size if log.exists() else None
    if not size:
        refuse_beside_jobs(folder, f"{log} is {'missing' if size is None else 'empty'}")


def refuse_beside_jobs(folder: Path, what: str) -> None:
    """Raise InvalidConfig if there are jobs for whose log `what` is said."""
    count = len(job_folders(folder))
    if count:
        raise InvalidConfig(
            f"{what}, but {folder / JOBS} holds {count} {'job' if count == 1 else 'jobs'}",
            hint="bring the log back with `weft state restore BACKUP --state "
            f"{folder}`; to start over, end what still runs and move `{JOBS}` and `{LIVE}` away",
        )


def job_folders(folder: Path) -> list[Path]:
    """The folders of jobs, in order of their names."""
    try:
        there = (folder / JOBS).iterdir()
        return sorted(path for path in there if path.is_dir() and not path.name.startswith("."))
    except FileNotFoundError:
        return []


def live_marks(folder: Path) -> list[str]:
    """The names of marks of attempts that may run."""
    try:
        return sorted(os.listdir(folder / LIVE))  # noqa: PTH208 - names are all that is wanted
    except FileNotFoundError:
        return []


def _to_close(folder: Path) -> Iterator[Path]:
    there = [*folder.iterdir()]
    whole = not there or any(path.name in OURS for path in there)
    if whole:
        yield folder
    for path in there:
        mode = _mode_of(path)
        ours = stat.S_ISDIR(mode) and path.name in OURS
        if ours or (stat.S_ISREG(mode) and (whole or path.name.startswith(LOG))):
            yield path


def _mode_of(path: Path) -> int:
    """The kind of a path and who may use it; 0 for what is gone meanwhile."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0
