"""Everything the log led to, as bytes: checked when they are read, and no program.

A snapshot is a line that says what it is, the SHA-256 of the rest, and the rest: compressed lines
of JSON, first what is short, then the tables in parts. Nothing that a line can say makes a reader
do anything but build values of the types named here. Taking one copies lists, and the parts are
written with time for others between: jobs' records are many, and never change.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from weft import core
from weft.core.codec.columns import pack, unpack
from weft.core.errors import InvalidConfig, WeftError
from weft.core.protocols import Store
from weft.core.state.saved_state import TABLES, Held
from weft.frozen import frozen
from weft.garbage import no_collection
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.usage import DayUsage
from weft.runtime.recovery.recover import Recovered, freeze
from weft.version import __version__

FORMAT = 1
MAGIC = b"weft snapshot "
PART = 100  # rows of a table: some 2 ms
KINDS: dict[str, type] = {**TABLES, "promised": Held, "records": JobRecord, "usage": DayUsage}
log = logging.getLogger(__name__)

PAUSE_S = 0.01  # between parts of a snapshot
JOBS_A_EVENT = 4  # the more jobs there are the rarer a snapshot, so that it costs a part of a turn


class DamagedSnapshot(InvalidConfig):
    """Bytes that are not what was written."""


@frozen
class Frozen:
    """One moment: what is short, and tables of things that do not change any more."""

    head: Mapping[str, Any]
    tables: Mapping[str, Sequence[Any]]

    def parts(self) -> Iterator[bytes]:
        """The lines, a few rows at a time."""
        yield _line({"fingerprint": fingerprint(), **self.head})
        for name, rows in self.tables.items():
            for start in range(0, len(rows), PART):
                yield _line([name, pack(KINDS[name], rows[start : start + PART])])

    def whole(self, parts: Sequence[bytes]) -> bytes:
        """The snapshot made of all `parts`."""
        body = zlib.compress(b"".join(parts), 1)
        digest = hashlib.sha256(body).hexdigest().encode()
        return MAGIC + b"%d " % FORMAT + digest + b"\n" + body


@frozen
class Thawed:
    """What a snapshot says; `current` unless other code than this wrote it."""

    head: Mapping[str, Any]
    tables: Mapping[str, Sequence[Any]]

    @property
    def current(self) -> bool:
        """Whether this very code folded the events that led here."""
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


def _line(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


# ---- Snapshots at their pace: one at a time, in parts, so that no request waits for them


class Saver:
    """Writes a snapshot whenever `every` events have come since the last, of this run or before."""

    def __init__(self, store: Store, every: int) -> None:
        self.wants_base: Callable[[int, float], bool] = lambda _seq, _at: False
        self._store = store
        self._every, self._last, self._soon = every, 0, False
        self._task: asyncio.Task[None] | None = None
        self._base: asyncio.Task[None] | None = None

    def look(self, known: Recovered, broken: Callable[[asyncio.Task[None]], None]) -> None:
        """Between two turns: begin a snapshot if one is due."""
        jobs = len(known.ledger.jobs.live)
        due = max(self._last, known.saved) + max(self._every, jobs // JOBS_A_EVENT)
        if (self._soon or known.seq >= due) and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._write(*self._freeze(known), PAUSE_S))
            self._task.add_done_callback(broken)

    def soon(self) -> None:
        """Let a snapshot be due after the next turn."""
        self._soon = True

    def take_base(self, known: Recovered, broken: Callable[[asyncio.Task[None]], None]) -> None:
        """Before a policy begins without memory: a point that the log can go on from, if wanted."""
        if not self.wants_base(known.seq, known.at):
            return
        frozen = freeze(known, active_only=True)
        self._base = asyncio.create_task(self._write_base(known.seq, known.at, frozen))
        self._base.add_done_callback(broken)

    async def base_written(self) -> None:
        """Wait until the last base is on disk."""
        if self._base is not None:
            await asyncio.gather(self._base, return_exceptions=True)

    async def finish(self, known: Recovered | None) -> None:
        """Wait for what is being written, then write `known` if it is given."""
        await self.base_written()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if known is not None:
            await self._write(*self._freeze(known), 0.0)

    def _freeze(self, known: Recovered) -> tuple[int, Frozen]:
        """The present moment: in a turn the scheduler is ahead of what is written down."""
        self._last, self._soon = known.seq, False
        return known.seq, freeze(known)

    async def _write_base(self, seq: int, at: float, frozen: Frozen) -> None:
        try:
            whole = await asyncio.to_thread(lambda: frozen.whole([*frozen.parts()]))
            await asyncio.to_thread(self._store.keep_base, seq, at, whole)
        except WeftError as error:
            log.warning("base=%d not written: %s", seq, error.what)

    async def _write(self, seq: int, frozen: Frozen, pause_s: float) -> None:
        """In parts; one that cannot be written is only a slower next start."""
        parts = []
        for part in frozen.parts():
            parts.append(part)
            await asyncio.sleep(pause_s)
        try:
            whole = await asyncio.to_thread(frozen.whole, parts)
            await asyncio.to_thread(self._store.save, seq, whole)
        except WeftError as error:
            log.warning("snapshot=%d not written: %s", seq, error.what)
