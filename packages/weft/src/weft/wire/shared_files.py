"""Read files that a job can write: they may be anything by the time they are opened.

A pipe would block its reader, a link leads elsewhere, a folder cannot be read, and a file may
be larger than memory. None of that gets past `open_regular` and a limit. In a folder that root gave
to a user, what is not that user's own is refused as well: a hard link may lead anywhere. So is a
file of ours with several names in a folder that is shared with a user.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from weft.wire.errors import WireError
from weft.wire.shared_folders import shared_with

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
    if ours_again and shared_with(path.parent) is not None:
        os.close(handle)
        raise WireError(f"{path} may be a link that another user made")
    return handle


def given_to(folder: Path, otherwise: int) -> int:
    """Whom root gave a folder to; `otherwise` where it is root's own or we are not root."""
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
