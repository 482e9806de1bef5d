"""Frames of a terminal: a kind, a length and bytes, equal on every hop.

d  bytes that were typed, or printed
r  the window's size, `rows columns`
e  nothing more will be typed
x  the process has ended, with this exit code; negative for a signal
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from weft.base.errors import WireError

DATA, RESIZE, EOF, EXIT = b"d", b"r", b"e", b"x"
KINDS = DATA + RESIZE + EOF + EXIT
MOST = 1 << 20
MOST_ROWS = 10_000
_HEAD = struct.Struct(">cI")

Frame = tuple[bytes, bytes]


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Return one frame as it is sent."""
    return _HEAD.pack(kind, len(payload)) + payload


def window(rows: int, columns: int) -> bytes:
    """A frame with the size of a window."""
    return frame(RESIZE, b"%d %d" % (rows, columns))


def read_window(payload: bytes) -> tuple[int, int]:
    """Rows and columns that a terminal can have; WireError for what is no size."""
    words = payload.split()
    try:
        rows, columns = (min(max(int(word), 0), MOST_ROWS) for word in words)
    except ValueError as error:
        raise WireError(f"{payload[:40]!r} is not a window size") from error
    return rows, columns


class Frames:
    """Puts frames together from the pieces that arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that are whole by now; WireError for what is none."""
        self._rest += chunk
        while len(self._rest) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest)
            if kind not in KINDS or length > MOST:
                raise WireError(f"{bytes(self._rest[:5])!r} is not a terminal frame")
            if len(self._rest) < _HEAD.size + length:
                return
            payload = bytes(self._rest[_HEAD.size : _HEAD.size + length])
            del self._rest[: _HEAD.size + length]
            yield kind, payload
