"""Sends lines to the attempt's agent, and keeps no descriptor between two of them.

Programs close descriptors that they did not open, and count those that are open: a line has a
socket of its own, open only while it is sent. Even then another thread may close it, so it sits
where no file of the program comes to be, and is used only while it still is the socket it was.
"""

from __future__ import annotations

import _socket
from fcntl import F_DUPFD_CLOEXEC, fcntl

from .guard import identity, is_the_programs

HIGH = 900  # descriptors are given away from the lowest
KIND = _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC


def send(path: str, line: bytes) -> bool:
    """Send a line without waiting; whether all of it went out."""
    try:
        opened = _open()
    except Exception as error:  # all that it may have are open, or it refuses sockets
        if is_the_programs(error):
            raise
        return False
    own = identity(opened.fileno())
    try:
        opened.connect(path)
        # Without the signal that the program may have made its end.
        whole = _is(opened, own) and opened.send(line, _socket.MSG_NOSIGNAL) == len(line)
    except Exception as error:
        if is_the_programs(error):
            raise
        whole = False
    # Nothing of this is in a `finally`, where a handler of signals could raise before the end of
    # it: the socket is closed as its object goes.
    if _is(opened, own):
        opened.close()
    else:
        opened.detach()
    return whole


def _open() -> _socket.socket:
    low = _socket.socket(_socket.AF_UNIX, KIND)
    # In one call, as handlers of signals run between two: the number alone would stay open.
    move = map(fcntl, (low.fileno(),), (F_DUPFD_CLOEXEC,), (HIGH,))
    try:
        high = next(map(_socket.socket, (_socket.AF_UNIX,), (KIND,), (0,), move))
    except OSError as error:  # the program may have only a few
        if is_the_programs(error):
            raise
        return low
    low.close()
    return high


def _is(opened: _socket.socket, own: tuple[int, int] | None) -> bool:
    return own is not None and identity(opened.fileno()) == own
