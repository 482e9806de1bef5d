"""Messages between a service and the process that decides: pickles with their length in front."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

from weft.core.errors import EngineError
from weft.core.events.event import Event
from weft.core.plan.plan import Plan
from weft.core.spec.part_spec import PartSpec
from weft.frozen import frozen

LENGTH = struct.Struct("<Q")
TimedEvent = tuple[float, Event]


@frozen
class Begin:
    """Everything so far: what `Scheduler.pickle_state` returned, pickled, and the policy's memory.

    Answered by None.
    """

    state: bytes
    policy: PartSpec
    memory: bytes


@frozen
class Decide:
    """Events since the last one, and the time of the decision that is wanted."""

    told: Sequence[TimedEvent]
    now: float


@frozen
class PlanReply:
    """A plan, with the policy's memory pickled: the caller need not know its type.

    `cpu_s` is what it took to make.
    """

    plan: Plan
    memory: bytes
    cpu_s: float


@frozen
class Failure:
    """The failure of a decision, in a line and with its traceback."""

    what: str
    trace: str


def frame(value: Any) -> bytes:
    """A value as bytes, with their number in front."""
    body = pack(value)
    return LENGTH.pack(len(body)) + body


def pack(value: Any) -> bytes:
    """A value as bytes; Unpackable if it has no such form."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PickleError, TypeError, AttributeError) as error:
        raise Unpackable(f"{type(value).__name__} cannot be sent: {error}") from error


def unpack(body: bytes) -> Any:
    """The value of what `packed` made; Unpackable if it cannot be made here."""
    try:
        return pickle.loads(body)  # noqa: S301 - from a process of ours, through a pipe of ours
    except (pickle.PickleError, AttributeError, ImportError, EOFError) as error:
        raise Unpackable(f"what was sent cannot be read: {error}") from error


class Unpackable(EngineError):  # noqa: N818 - as the others
    """A value that cannot go from one process to another."""


def read_frame(source: BinaryIO | Any) -> Any:
    """The next value; EOFError if the other side has gone."""
    return unpack(read_body(source))


def read_body(source: BinaryIO | Any) -> bytes:
    """The bytes of the next value; EOFError if the other side has gone."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    body: bytes = source.read(length)
    if len(body) < length:
        raise EOFError
    return body
