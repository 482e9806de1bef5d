"""Everything the log led to, as bytes, without holding up whoever asks meanwhile.

Most of it are jobs' records, which never change. So only the rest is written in one go, with jobs
by name; the records follow in parts, with time for others between.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft import __version__
from weft.core import model
from weft.core.model import Job, JobId
from weft.runtime.ledger import JobRecord, Ledger

PART = 100  # records: some 3 ms


@dataclass(frozen=True, slots=True)
class Frozen:
    """One moment: what is not records, and the records of that moment."""

    rest: bytes
    records: list[JobRecord]

    def parts(self) -> Iterator[bytes]:
        """The records, a few at a time."""
        for start in range(0, len(self.records), PART):
            yield pickle.dumps(self.records[start : start + PART])

    def whole(self, parts: list[bytes]) -> bytes:
        """The snapshot made of all `parts`."""
        return pickle.dumps((fingerprint(), self.rest, parts))


def freeze(ledger: Ledger, rest: object) -> Frozen:
    """The present moment; raises what pickle raises if some part of `rest` cannot be written."""
    out = io.BytesIO()
    promised = ledger.promised()
    _Writer(out, ledger.jobs).dump((promised, rest))
    return Frozen(out.getvalue(), list(ledger.jobs.values()))


def thaw(data: bytes) -> tuple[Ledger, Any] | None:
    """The ledger and the rest; None if another version of the code wrote it."""
    written, rest, parts = pickle.loads(data)  # noqa: S301 - written by us, in a file of ours
    if written != fingerprint():
        return None
    records: list[JobRecord] = []
    for part in parts:
        records += pickle.loads(part)  # noqa: S301 - as above
    jobs = {one.job.id: one for one in records}
    promised, kept = _Reader(io.BytesIO(rest), jobs).load()
    return Ledger(jobs, promised), kept


@cache
def fingerprint() -> str:
    """What a snapshot's objects are made of: another version of the code reads the log."""
    digest = hashlib.sha256(__version__.encode())
    for folder in (Path(model.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class _Writer(pickle.Pickler):
    """Writes the ledger's jobs by name."""

    def __init__(self, out: io.BytesIO, records: Mapping[JobId, JobRecord]) -> None:
        super().__init__(out)
        self._records = records

    def persistent_id(self, thing: object) -> JobId | None:
        if type(thing) is not Job:
            return None
        known = self._records.get(thing.id)
        return thing.id if known is not None and known.job is thing else None


class _Reader(pickle.Unpickler):
    """Finds jobs by name."""

    def __init__(self, source: io.BytesIO, records: Mapping[JobId, JobRecord]) -> None:
        super().__init__(source)
        self._records = records

    def persistent_load(self, name: JobId) -> Job:
        return self._records[name].job
