"""Files that a job can write, read with care, and folders that one other user may write in.

A service that is not root cannot give a folder away, but it can let one more user into a folder of
its own (POSIX ACLs, `getfacl` shows them). A user who is let in cannot change who else is. Where
the file system keeps no such lists, the folder is the user's and its group is the service's.

A pipe would block its reader, a link leads elsewhere, a folder cannot be read, and a file may
be larger than memory. None of that gets past `open_regular` and a limit. In a folder that root gave
to a user, what is not that user's own is refused as well: a hard link may lead anywhere. So is a
file of ours with several names in a folder that is shared with a user.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path

from weft.base.errors import WireError

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
VERSION = 2
OWNER, USER, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
NOBODY = 0xFFFFFFFF
ALL, WALK = 7, 1
PASS = 0o711  # others may walk through
HANDED = 0o2770  # a user's folder in the group of the service
ENTRY = struct.Struct("<HHI")
HEAD = struct.Struct("<I")
PRIVATE, SHARED, OPEN = 0o600, 0o660, 0o666


def keeps_lists(folder: Path) -> bool:
    """True if the folder's file system keeps access control lists."""
    try:
        os.getxattr(folder, ACCESS)
    except OSError as error:
        return error.errno != errno.ENOTSUP
    return True


def let_walk(folder: Path, uid: int) -> None:
    """Let one more user walk through a folder of ours; all others too where there are no lists."""
    if keeps_lists(folder):
        os.setxattr(folder, ACCESS, _entries(WALK, uid))
    elif folder.stat().st_uid == os.geteuid():
        folder.chmod(PASS)


def share_folder(folder: Path, uid: int) -> None:
    """Let a user read and write in a folder of ours, and in what either of us makes there.

    Where there are no lists it is closed, and that user's own folder is to take its place.
    """
    if keeps_lists(folder):
        os.setxattr(folder, ACCESS, _entries(ALL, uid))
        os.setxattr(folder, DEFAULT, _entries(ALL, uid, os.geteuid()))  # either's, for both
    elif folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)


def shared_with(folder: Path) -> int | None:
    """The user who shares a folder with the service; None for a folder of one user alone."""
    try:
        acl = os.getxattr(folder, DEFAULT)
    except OSError:
        return _handed_by(folder)
    rows = [ENTRY.unpack_from(acl, at) for at in range(HEAD.size, len(acl), ENTRY.size)]
    owner = folder.stat().st_uid
    return next((int(who) for tag, _, who in rows if tag == USER and who != owner), None)


def _handed_by(folder: Path) -> int | None:
    """The user whose folder it is, in the group of the service; we are one or the other."""
    try:
        facts = folder.stat()
    except OSError:
        return None
    ours = facts.st_uid == os.geteuid()
    in_group = facts.st_gid in (os.getegid(), *os.getgroups())
    handed = stat.S_IMODE(facts.st_mode) == HANDED and ours != in_group
    return facts.st_uid if handed else None


def private_mode(folder: Path) -> int:
    """The mode of a new file in a folder: for its owner, and for the user who shares the folder."""
    shared = shared_with(folder)
    if shared is None:
        return PRIVATE
    handed = folder.stat().st_uid == shared != os.geteuid()
    return OPEN if handed else SHARED  # the folder lets in its user and us


def make_file(path: Path, flags: int, alone: int = PRIVATE) -> int:
    """A handle to write a file that may be new, with `alone` as its mode in a folder of one user.

    In a folder that is shared both may read it, whatever the umask.
    """
    mode = private_mode(path.parent)
    handle = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, alone if mode == PRIVATE else mode)
    if mode != PRIVATE and os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, mode)
    return handle


def _entries(rights: int, *uids: int) -> bytes:
    named = ((USER, rights, uid) for uid in sorted(uids))
    rest = ((GROUP, 0, NOBODY), (MASK, rights, NOBODY), (OTHER, 0, NOBODY))
    rows = ((OWNER, ALL, NOBODY), *named, *rest)
    return HEAD.pack(VERSION) + b"".join(ENTRY.pack(*row) for row in rows)


LIMIT = 1 << 20
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> int:
    """A handle to read `path`; FileNotFoundError if it is not there, WireError if it is no file."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            what = "a link" if error.errno == errno.ELOOP else "not a file"
            raise WireError(f"{path} is {what}, expected a regular file") from error
        raise
    facts = os.fstat(handle)
    kind = stat.S_IFMT(facts.st_mode)
    if kind != stat.S_IFREG:
        os.close(handle)
        raise WireError(f"{path} is {_KINDS.get(kind, 'no file')}, expected a regular file")
    if facts.st_uid != given_to(path.parent, facts.st_uid):
        os.close(handle)
        raise WireError(f"{path} does not belong to the user whose folder it is in")
    ours_again = facts.st_nlink > 1 and facts.st_uid == os.geteuid()
    if ours_again and _others_write(path.parent):
        os.close(handle)
        raise WireError(f"{path} may be a link that another user made")
    return handle


def _others_write(folder: Path) -> bool:
    """True if another user than root and us may have made what is there."""
    return folder.stat().st_uid not in (0, os.geteuid()) or shared_with(folder) is not None


def given_to(folder: Path, otherwise: int) -> int:
    """The user to whom root gave a folder.

    `otherwise` where it is root's own or we are not root.
    """
    if os.geteuid() != 0:
        return otherwise
    return folder.stat().st_uid or otherwise


def read_regular(path: Path, limit: int = LIMIT) -> bytes:
    """All of a small file; WireError if it is larger than `limit` or no regular file."""
    handle = open_regular(path)
    try:
        text = os.read(handle, limit + 1)
    finally:
        os.close(handle)
    if len(text) > limit:
        raise WireError(f"{path} is larger than {limit} bytes")
    return text
