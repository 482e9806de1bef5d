"""Becoming the user a job runs as, and knowing who is at the other end of a Unix socket.

The agent keeps the service's user: it must end whatever its ranks start. Only ranks give it up,
for good, and only after that do they touch anything the job named.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.frozen import frozen
from weft.wire.identity import Identity
from weft.wire.processes import allow_own_proc, no_new_privileges

CREDENTIALS = struct.Struct("3i")


@frozen
class Peer:
    """The process that connected, as the kernel knows it."""

    pid: int
    uid: int
    gid: int


def switch_user(user: Identity) -> None:
    """Be `user` from here on: groups first, then the user, and no way back by any file."""
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    no_new_privileges()
    allow_own_proc()
    os.umask(user.umask)


@contextmanager
def acting_as(user: Identity | None) -> Iterator[None]:
    """Open and make files with the rights of `user` inside; in a process without threads.

    What a job named, such as its checkpoint folder, may be a link to what is not its own.
    """
    if user is None:
        yield
        return
    uid, gid, groups, umask = os.geteuid(), os.getegid(), os.getgroups(), os.umask(user.umask)
    try:
        os.setgroups(user.groups)
        os.setegid(user.gid)
        os.seteuid(user.uid)
        yield
    finally:
        os.seteuid(uid)
        os.setegid(gid)
        os.setgroups(groups)
        os.umask(umask)


def peer_of(conversation: socket.socket) -> Peer:
    """The peer that connected."""
    raw = conversation.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return Peer(*CREDENTIALS.unpack(raw))


def may_speak(conversation: socket.socket, user: Identity | None = None) -> bool:
    """True if the peer is this process's own user, or `user`."""
    return peer_of(conversation).uid in (os.geteuid(), user.uid if user else os.geteuid())


def admit(listener: socket.socket, user: Identity | None = None) -> socket.socket | None:
    """The next caller who may speak; None if there is none, for now or any more.

    That a listener was readable does not mean that it still is: its caller may have been let in
    while its owner attended to something else that came at the same moment.
    """
    try:
        conversation, _ = listener.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return None
    if may_speak(conversation, user):
        return conversation
    conversation.close()
    return None


def hand_over(path: Path, user: Identity | None) -> None:
    """Close a file to everyone but its owner, who is `user` if there is one."""
    path.chmod(0o600)
    if user is not None:
        os.chown(path, user.uid, user.gid)
