"""The user that a job runs as on this machine, and folders that only that user can enter."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job
from weft.wire.attempt import USER, job_folder, write_whole
from weft.wire.identity import Identity
from weft.wire.shared_folders import let_walk, share_folder

PASS = 0o711  # others may walk through
ENTER = 0o710  # the group may walk in
OWN = 0o700
PRIVATE = 0o600


def user_of(users: Mapping[str, Identity], job: Job) -> Identity | None:
    """The user of the job's account, or else of its tenant; None where no user is mapped.

    Raises InvalidConfig for a job of someone without a user: it must not run as the service.
    """
    if not users:
        return None
    account = job.launch.account if job.launch is not None else ""
    user = users.get(account or job.tenant)
    if user is None:
        whose = f"account {account!r}" if account else f"tenant {job.tenant!r}"
        raise InvalidConfig(
            f"job {job.id!r}: {whose} has no user on this machine",
            hint=f"an admin adds [{account or job.tenant}] to the users of `weft serve`",
        )
    return user


def check_users(users: Mapping[str, Identity], state: Path, *, by_client: bool = False) -> None:
    """Raise InvalidConfig where jobs could not run as these users, or not reach their folders.

    `by_client` says that the users themselves start their jobs.
    """
    if not users:
        return
    others = any(user.uid != os.geteuid() for user in users.values())
    if os.geteuid() != 0 and others and not by_client:
        raise InvalidConfig(
            "only a service that runs as root can run jobs as other users",
            hint="start it as root, or leave --users out; on Slurm see submit_as=client",
        )
    for folder in state.absolute().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise InvalidConfig(
                f"users of jobs cannot reach {state}: {folder} is closed to them",
                hint=f"`chmod o+x {folder}`, or name another --state folder such as /var/lib/weft",
            )


def let_through(state: Path) -> None:
    """Let users of jobs walk to their own folders; what lies there is closed by itself."""
    for file in state.iterdir():
        if stat.S_ISREG(file.lstat().st_mode):
            file.chmod(PRIVATE)
    for folder in (state, state / "jobs"):
        folder.chmod(PASS)


def make_folder(folder: Path, state: Path, job: str, checkpoints: Path, user: Identity) -> None:
    """An attempt's folder: the service's own, with a way for `user` to its socket and checkpoints.

    A job can neither read nor change what its agent writes.
    """
    own = job_folder(state, job)
    folder.mkdir(parents=True, exist_ok=True)
    for made in (own, folder):
        if _may_give(user):
            os.chown(made, os.geteuid(), user.gid)
            made.chmod(ENTER)
        else:
            let_walk(made, user.uid)
    write_whole(own / USER, {"uid": user.uid, "gid": user.gid})
    if checkpoints.parent == own and not checkpoints.exists():
        give_folder(checkpoints, user)


def give_folder(folder: Path, user: Identity) -> None:
    """A folder of the user's own in one of the service's: nothing inside can be trusted.

    Without the right to give it away, it stays the service's and the user may write in it.
    """
    folder.mkdir(mode=OWN, exist_ok=True)
    if not _may_give(user):
        share_folder(folder, user.uid)
        return
    os.chown(folder, user.uid, user.gid)
    folder.chmod(OWN)


def _may_give(user: Identity) -> bool:
    return os.geteuid() in (0, user.uid)


def may_walk_to(path: Path, user: Identity | None) -> bool:
    """Whether `user` may look at `path`, so that an error may say what is there; None: always."""
    return user is None or all(_may_enter(folder, user) for folder in path.absolute().parents)


def _may_enter(folder: Path, user: Identity) -> bool:
    try:
        facts = folder.stat()
    except OSError:
        return False
    if facts.st_uid == user.uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid in (user.gid, *user.groups):
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)
