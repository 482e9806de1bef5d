"""What a service and a process that works for it tell each other, and how it is packed."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from weft.core.errors import EngineError
from weft.frozen import frozen
from weft.runtime.deciding.frames import LENGTH, unpack

Report = Callable[[Any], None]


class TookTooMuch(EngineError):  # noqa: N818 - as the others
    """Work that was ended because it needed more time or memory than it may."""


@frozen
class Work:
    """What is to be done: called with somebody to report to. `cpu_s` is what it may take."""

    do: Callable[[Report], Any]
    cpu_s: float


@frozen
class News:
    """What the work reports on its way."""

    value: Any


@frozen
class Done:
    """What the work came to: a value, or the error that ended it."""

    value: Any = None
    error: BaseException | None = None


class _Yielding(pickle.Pickler):
    """Calls back for every object, so that other threads have their turn meanwhile.

    Without it nobody else runs while a value is packed: half a second for 15,000 jobs.
    """

    def reducer_override(self, obj: Any) -> Any:  # noqa: ARG002 - all are packed as usual
        return NotImplemented


def pack_slowly(value: Any) -> bytes:
    """A value with its length in front, packed so that others can go on."""
    out = io.BytesIO()
    out.write(LENGTH.pack(0))
    _Yielding(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    length = out.tell() - LENGTH.size
    out.seek(0)
    out.write(LENGTH.pack(length))
    return out.getvalue()


def read_frame(source: io.BufferedIOBase | Any) -> Any:
    """The next value; EOFError if the other side has gone."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    body = source.read(length)
    if len(body) < length:
        raise EOFError
    return unpack(body)
