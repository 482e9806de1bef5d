"""The folders of jobs: which may run, how large they are, and their end."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from weft.base.errors import WireError
from weft.core.model.job import JobId
from weft.engines.attempts.rounds import Key
from weft.frozen import frozen
from weft.wire.attempt import (
    ADJUST,
    AGENT_LOG,
    CLAIM,
    EVENTS,
    RESIZE,
    SPEC,
    AttemptSpec,
    folder_of,
    job_folder,
    read_json,
)

log = logging.getLogger(__name__)


def mark_of(state: Path, folder: Path) -> Path:
    """A file that is there while an attempt may run, so that a start need not look at all."""
    return state / "live" / f"{folder.parent.name}@{folder.name}"


def find_attempts(state: Path) -> Iterator[Path]:
    """Folders of attempts that may run; a mark that is not ours is skipped."""
    live = state / "live"
    for path in sorted(live.iterdir()) if live.is_dir() else ():
        job, at, attempt = path.name.rpartition("@")
        if at and job and attempt.isdigit():
            yield state / "jobs" / job / attempt
        else:
            log.warning("file=%s is no mark of an attempt; skipped", path)


def adopt_attempts(
    state: Path,
    attempts: Collection[Key],
    resume: Callable[[Key], bool],
    end_stranger: Callable[[Path], bool],
) -> set[Key]:
    """Adopt those of `attempts` that were prepared before a restart; end whatever else may run.

    A stranger that cannot be ended has never begun: a service died while it made the folder.
    """
    known = {key for key in attempts if resume(key)}
    mine = {folder_of(state, *key) for key in known}
    for folder in find_attempts(state):
        if folder in mine:
            continue
        if end_stranger(folder):
            log.warning("attempt=%s belongs to no job; ending it", folder)
        else:
            mark_of(state, folder).unlink(missing_ok=True)
    return known


def remove_jobs(state: Path, jobs: Collection[JobId]) -> None:
    """Remove the folders of these jobs; links in them are removed, not followed.

    A folder is renamed first, so that what is left after a crash is seen to be rubbish.
    """
    for job in jobs:
        folder = job_folder(state, job)
        doomed = folder.with_name(f".removed-{folder.name}")
        try:
            folder.rename(doomed)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("folder=%s cannot be removed: %s", folder, error)
            continue
        shutil.rmtree(doomed, ignore_errors=True)
    for left in (state / "jobs").glob(".removed-*"):
        shutil.rmtree(left, ignore_errors=True)


def stored_bytes(state: Path, jobs: Collection[JobId]) -> dict[JobId, int]:
    """Bytes of disk that each job's folder takes."""
    return {job: folder_bytes(job_folder(state, job)) for job in jobs}


def folder_bytes(folder: Path) -> int:
    """Bytes of disk of all files below a folder; links are not followed."""
    total = 0
    for place, _, files in os.walk(folder, onerror=None):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118
            except FileNotFoundError:
                continue
    return total


def never_began(folder: Path, group: Path | None) -> bool:
    """True if a service died while it made an attempt's folder, before anything ran there."""
    written = any((folder / name).exists() for name in (SPEC, CLAIM, AGENT_LOG, EVENTS))
    return folder.is_dir() and not written and not (group is not None and group.exists())


def set_aside(state: Path, folder: Path) -> None:
    """Move what is left of a quarantined attempt to where nothing looks at it."""
    room = state / "quarantine"
    room.mkdir(mode=0o700, exist_ok=True)
    name = f"{folder.parent.name}@{folder.name}"
    for number in range(1000):
        with contextlib.suppress(FileNotFoundError):
            try:
                folder.rename(room / (f"{name}.{number}" if number else name))
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                continue
        return
    raise WireError(f"{room} holds a thousand folders of {name}")


# What an attempt that ran before a restart has of this machine, from its files.


@frozen
class Recalled:
    """The terms that were asked for last; `group` is its control group, if it is one of ours."""

    spec: AttemptSpec
    discipline: str
    cores: tuple[int, ...]
    group: Path | None


def read_attempt(folder: Path, groups: str = "") -> Recalled:
    """Read the attempt in `folder`, where groups are in one called `groups`.

    WireError or OSError if its files are not as they were left.
    """
    spec = AttemptSpec.read(folder / SPEC)
    resized = read_json(folder / RESIZE)
    if resized is not None:
        if not isinstance(resized.get("spec"), dict):
            raise WireError(f"{folder / RESIZE} is not ours")
        spec = AttemptSpec.of(resized["spec"])
    since = read_json(folder / ADJUST) or {}
    cores = tuple(core for rank in since.get("cores", spec.cores) for core in rank)
    group = Path(spec.group)
    own = (group.parent.name, group.name) == (groups, f"{folder.parent.name}@{folder.name}")
    discipline = str(since.get("discipline", spec.discipline))
    return Recalled(spec, discipline, cores, group if own else None)
