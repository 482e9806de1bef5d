"""The size of a person's window, as it is told to the job's terminal."""

from __future__ import annotations

import signal
import socket
import threading

from weft.cli.connect.duplex import Talk
from weft.cli.connect.session import _carry
from weft.wire.terminal import EXIT, RESIZE, Frames, frame

LIMIT_S = 60.0


class Far:
    """The job's end of a conversation."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(LIMIT_S)
        self._connection, self._talk = connection, Talk(connection, b"")
        self._frames, self._sizes = Frames(), 0

    def hears_sizes(self, count: int) -> bool:
        """Return true once so many sizes were told; false if they do not come."""
        while self._sizes < count:
            try:
                heard = self._talk.receive()
            except TimeoutError:
                return False
            self._sizes += sum(kind == RESIZE for kind, _ in self._frames.feed(heard))
        return True

    def leaves(self) -> None:
        last = frame(EXIT, b"3")
        self._connection.sendall(b"%x\r\n%s\r\n" % (len(last), last))


def test_a_size_that_changes_just_before_a_wait_is_told() -> None:
    here, there = socket.socketpair()
    heard = list[bool]()

    def other_end() -> None:
        far = Far(there)
        heard.append(far.hears_sizes(1))
        # A signal that this thread takes does not end the wait of the main thread, just as
        # one does not that comes in the instant before it.
        signal.pthread_kill(threading.get_ident(), signal.SIGWINCH)
        heard.append(far.hears_sizes(2))
        far.leaves()

    with here, there:
        other = threading.Thread(target=other_end)
        other.start()
        code = _carry(Talk(here, b""))
        other.join()

    assert heard == [True, True]
    assert code == 3
