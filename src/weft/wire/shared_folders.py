"""Folders in which one other user may write, by access control lists that the kernel checks.

A service that is not root cannot give a folder away, but it can let one more user into a folder of
its own (POSIX ACLs, `getfacl` shows them). A user who is let in cannot change who else is.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

from weft.wire.errors import WireError

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
VERSION = 2
OWNER, USER, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
NOBODY = 0xFFFFFFFF
ALL, WALK = 7, 1
ENTRY = struct.Struct("<HHI")
HEAD = struct.Struct("<I")
PRIVATE, SHARED = 0o600, 0o660


def let_walk(folder: Path, uid: int) -> None:
    """Let one more user walk through a folder of ours."""
    _set(folder, ACCESS, _entries(WALK, uid))


def share_folder(folder: Path, uid: int) -> None:
    """Let a user read and write in a folder of ours, and in what either of us makes there."""
    _set(folder, ACCESS, _entries(ALL, uid))
    _set(folder, DEFAULT, _entries(ALL, uid, os.geteuid()))  # files are either's, for both


def shared_with(folder: Path) -> int | None:
    """The user who was let in by `share_folder`; None for a folder of one user alone."""
    try:
        acl = os.getxattr(folder, DEFAULT)
    except OSError:
        return None
    rows = [ENTRY.unpack_from(acl, at) for at in range(HEAD.size, len(acl), ENTRY.size)]
    owner = folder.stat().st_uid
    return next((int(who) for tag, _, who in rows if tag == USER and who != owner), None)


def private_mode(folder: Path) -> int:
    """The mode of a new file in a folder: for its owner, and for the user who shares the folder."""
    return PRIVATE if shared_with(folder) is None else SHARED


def _entries(rights: int, *uids: int) -> bytes:
    named = ((USER, rights, uid) for uid in sorted(uids))
    rest = ((GROUP, 0, NOBODY), (MASK, rights, NOBODY), (OTHER, 0, NOBODY))
    rows = ((OWNER, ALL, NOBODY), *named, *rest)
    return HEAD.pack(VERSION) + b"".join(ENTRY.pack(*row) for row in rows)


def _set(folder: Path, which: str, acl: bytes) -> None:
    try:
        os.setxattr(folder, which, acl)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        raise WireError(f"the file system of {folder} keeps no access control lists") from error
