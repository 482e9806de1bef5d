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
from collections.abc import Iterator, Mapping, Sequence
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
KINDS: dict[str, type] = {
    **TABLES,
    "promised": SavedPromise,
    "records": JobRecord,
    "usage": DayUsage,
}


class DamagedSnapshot(InvalidConfig):
    """Bytes that are not what was written."""


@frozen
class Frozen:
    """One moment: what is short, and tables of things that do not change any more.

    Of what is short the first may change later: it is written with the first part.
    """

    head: Mapping[str, Any]
    tables: Mapping[str, Sequence[Any]]

    def parts(self) -> Iterator[bytes]:
        """The lines, a piece of the first or a few rows of a table at a time."""
        before = b"{"
        for name, value in self.head.items():
            yield before + _json(name) + b":" + _json(value)
            before = b","
        yield b',"fingerprint":' + _json(fingerprint()) + b"}\n"
        for name, rows in self.tables.items():
            for start in range(0, len(rows), PART):
                yield _json([name, pack(KINDS[name], rows[start : start + PART])]) + b"\n"

    def whole(self, parts: Sequence[bytes]) -> bytes:
        """The snapshot made of all `parts`."""
        body = zlib.compress(b"".join(parts), 1)
        digest = hashlib.sha256(body).hexdigest().encode()
        return MAGIC + b"%d " % FORMAT + digest + b"\n" + body


@frozen
class Thawed:
    """The content of a snapshot; `is_same_code` unless other code than this wrote it."""

    head: Mapping[str, Any]
    tables: Mapping[str, Sequence[Any]]

    @property
    def is_same_code(self) -> bool:
        """True if this very code folded the events that led here."""
        return bool(self.head["fingerprint"] == fingerprint())


def thaw(data: bytes) -> Thawed:
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
    return Thawed(head, tables)


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


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
