"""Folders that persons' clients make, where the file system keeps no access control lists.

A client makes an empty folder in a room of ours, where all may make things and only we can list
them. The folder is the person's and in our group, which it has from the room, and closed to all
others. It is moved into a folder that is ours alone, so that the person cannot put another there.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from weft.base.errors import WireError
from weft.core.errors import InvalidConfig
from weft.wire.attempt import AGENT_LOG, SPEC
from weft.wire.identity import Identity
from weft.wire.shared_files import HANDED, OPEN, keeps_lists, shared_with

ROOM = 0o3733
CHANGED = (errno.ENOTEMPTY, errno.EEXIST)


def make_room(room: Path, users: Mapping[str, Identity]) -> None:
    """Make the room, unless the file system keeps lists.

    InvalidConfig for a user of our group, who could enter the folders of all others.
    """
    if keeps_lists(room.parent):
        return
    for name, user in users.items():
        if user.uid != os.geteuid() and os.getegid() in (user.gid, *user.groups):
            raise InvalidConfig(
                f"the file system of {room.parent} keeps no access control lists, and user "
                f"{user.name or user.uid} of {name!r} is in the service's group {os.getegid()}",
                hint="start the service with a group that no person is in, or choose a --state "
                "folder on a file system that keeps POSIX ACLs",
            )
    room.mkdir(mode=0o700, exist_ok=True)
    os.chown(room, -1, os.getegid())
    room.chmod(ROOM)


def find_unshared(folders: Iterable[Path], uid: int) -> tuple[str, ...]:
    """Folders of ours that a user cannot enter yet."""
    ours = os.geteuid()
    there = (folder for folder in folders if uid != ours and folder.is_dir())
    return tuple(str(f) for f in there if f.stat().st_uid == ours and shared_with(f) is None)


def put_in_place(fresh: Path, folder: Path, uid: int) -> bool:
    """Put the folder `fresh` that a user made in the place of one of ours, with the files in it.

    False if it is not there yet; WireError if it is not as it was asked for. It goes on where a
    service ended in the middle of it.
    """
    moved = folder.with_name(f".{folder.name}.handed")
    if not os.path.lexists(moved):
        try:
            fresh.rename(moved)
        except FileNotFoundError:
            return False
    facts = moved.lstat()
    kind = facts.st_mode, facts.st_uid, facts.st_gid
    if kind != (stat.S_IFDIR | HANDED, uid, os.getegid()):
        moved.rename(moved.with_name(f"{moved.name}.{secrets.token_hex(4)}"))
        raise WireError(f"the folder that was made for {folder} is not as it was asked for")
    if (folder / SPEC).exists():
        (folder / AGENT_LOG).touch()  # its user's shell appends to it
    for file in folder.iterdir():
        file.chmod(OPEN)
        file.rename(moved / file.name)
    try:
        moved.rename(folder)
    except OSError as error:
        if error.errno not in CHANGED:  # a request came meanwhile: the next time
            raise
        return False
    return True
