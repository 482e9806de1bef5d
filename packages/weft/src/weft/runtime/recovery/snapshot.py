"""Everything the log led to, as bytes: checked when they are read, and no program.

A snapshot is a line that says what it is, the SHA-256 of the rest, and the rest: compressed lines
of JSON, first what is short, then the tables in parts. Nothing that a line can say makes a reader
do anything but build values of the types named here. Taking one copies lists, and the parts are
written with time for others between: jobs' records are many, and never change.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from weft import core
from weft.base.garbage import no_collection
from weft.core.codec.columns import pack, unpack
from weft.core.errors import InvalidConfig, WeftError
from weft.core.state.saved_state import TABLES, SavedPromise
from weft.frozen import frozen
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.usage import DayUsage
from weft.version import __version__

FORMAT = 1
MAGIC = b"weft snapshot "
PART = 100  # rows of a table: some 2 ms
PIECE = 30_000  # characters of the head
MAY_CHANGE = (dict, list)  # of plain values
KINDS: dict[str, type] = {
    **TABLES,
    "promised": SavedPromise,
    "records": JobRecord,
    "usage": DayUsage,
}


class DamagedSnapshot(InvalidConfig):
    """Bytes that are not what was written."""


@frozen
class FrozenState:
    """One moment: a head of plain values, and tables of things that do not change any more."""

    head: Mapping[str, Any]
    tables: Mapping[str, Sequence[Any]]

    def parts(self) -> Iterator[bytes]:
        """The lines, a piece of the head or a few rows of a table at a time."""
        held = ""
        for piece in _pieces({**self.head, "fingerprint": fingerprint()}):
            held += piece
            if len(held) >= PIECE:
                yield held.encode()
                held = ""
        yield held.encode() + b"\n"
        for name, rows in self.tables.items():
            for start in range(0, len(rows), PART):
                yield _json([name, pack(KINDS[name], rows[start : start + PART])]).encode() + b"\n"

    def whole(self, parts: Sequence[bytes]) -> bytes:
        """The snapshot made of all `parts`."""
        body = zlib.compress(b"".join(parts), 1)
        digest = hashlib.sha256(body).hexdigest().encode()
        return MAGIC + b"%d " % FORMAT + digest + b"\n" + body


@frozen
class ThawedState:
    """The content of a snapshot; `is_same_code` unless other code than this wrote it."""

    head: Mapping[str, Any]
    tables: Mapping[str, Sequence[Any]]

    @property
    def is_same_code(self) -> bool:
        """True if this very code folded the events that led here."""
        return bool(self.head["fingerprint"] == fingerprint())


def thaw(data: bytes) -> ThawedState:
    """Read a snapshot; DamagedSnapshot unless every bit is as it was written."""
    body = _checked(data)
    tables: dict[str, list[Any]] = {name: [] for name in KINDS}
    try:
        first, *rest = zlib.decompress(body).splitlines()
        with no_collection():  # looking for garbage takes a third of the time
            head = json.loads(first)
            for line in rest:
                name, packed = json.loads(line)
                tables[name] += unpack(KINDS[name], packed)
    except (ValueError, KeyError, TypeError, zlib.error, WeftError) as error:
        raise DamagedSnapshot(f"the snapshot cannot be read: {error!r}") from error
    return ThawedState(head, tables)


@cache
def fingerprint() -> str:
    """The code that folds events: what another version made of them may be wrong here."""
    digest = hashlib.sha256(__version__.encode())
    for folder in (Path(core.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _checked(data: bytes) -> bytes:
    heading, _, body = data.partition(b"\n")
    if not heading.startswith(MAGIC):
        raise DamagedSnapshot("these bytes are not a snapshot")
    number, _, digest = heading.removeprefix(MAGIC).partition(b" ")
    if number != b"%d" % FORMAT:
        raise DamagedSnapshot(f"the snapshot has format {number.decode(errors='replace')!r}")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise DamagedSnapshot("the snapshot's checksum does not match its contents")
    return body


def copy_values(value: Any) -> Any:
    """A copy of plain values, as deep as they can change."""
    if isinstance(value, dict):
        return {k: copy_values(v) if type(v) in MAY_CHANGE else v for k, v in value.items()}
    return [copy_values(v) if type(v) in MAY_CHANGE else v for v in value]


def _pieces(value: Any) -> Iterator[str]:
    """The JSON of plain values, a bounded number of entries of a list or a dictionary at a time."""
    if isinstance(value, dict) and len(value) <= PART:
        yield "{"
        for number, (key, held) in enumerate(value.items()):
            yield "," * bool(number) + _json({key: 0})[1:-2]
            yield from _pieces(held)
        yield "}"
    elif isinstance(value, (dict, list, tuple)) and len(value) > PART:
        entries = list(value.items() if isinstance(value, dict) else value)
        whole: Callable[[Any], Any] = dict if isinstance(value, dict) else list
        none = _json(whole([]))
        for start in range(0, len(entries), PART):
            yield ("," if start else none[0]) + _json(whole(entries[start : start + PART]))[1:-1]
        yield none[1]
    else:
        yield _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
