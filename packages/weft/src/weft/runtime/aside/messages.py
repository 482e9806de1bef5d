"""Messages between a service and a process that works for it, and how they are packed."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from weft.core.errors import EngineError
from weft.core.model.job import Job
from weft.frozen import frozen
from weft.runtime.deciding.frames import LENGTH, read_body

Report = Callable[[Any], None]
Jobs = dict[int, Job]


class TookTooMuch(EngineError):  # noqa: N818 - as the others
    """Work that was ended because it needed more time or memory than it may."""


@frozen
class WorkRequest:
    """Work to be done: called with someone to report to. `cpu_s` is what it may take."""

    do: Callable[[Report], Any]
    cpu_s: float


@frozen
class News:
    """A report of the work on its way."""

    value: Any


@frozen
class WorkResult:
    """The result of the work: a value, or the error that ended it."""

    value: Any = None
    error: BaseException | None = None


class _Yielding(pickle.Pickler):
    """Calls back for every object, so that other threads have their turn meanwhile.

    Without it no other thread runs while a value is packed: half a second for 15,000 jobs.
    """

    def reducer_override(self, obj: Any) -> Any:  # noqa: ARG002 - all are packed as usual
        return NotImplemented


class _Numbering(_Yielding):
    """Writes a number instead of each job, and keeps the jobs."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self.jobs: Jobs = {}

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not Job:
            return None
        self.jobs[id(obj)] = obj
        return id(obj)


class _Finding(pickle.Unpickler):
    """Reads a job for each number, and keeps those that were read."""

    def __init__(self, source: io.BytesIO, jobs: Jobs) -> None:
        super().__init__(source)
        self._all, self.jobs = jobs, Jobs()

    def persistent_load(self, number: Any) -> Job:
        job = self.jobs[number] = self._all[number]
        return job


def pack_work(work: WorkRequest, known: Jobs) -> tuple[bytes, Jobs]:
    """A frame with work, packed so that others can go on, and its jobs, which are known then.

    Both sides keep the jobs of the last work, so that thousands of waiting jobs are sent once.
    """
    body, fresh = io.BytesIO(), io.BytesIO()
    packer = _Numbering(body)
    packer.dump(work)
    unknown = {number: job for number, job in packer.jobs.items() if number not in known}
    _Yielding(fresh, protocol=pickle.HIGHEST_PROTOCOL).dump(unknown)
    length = LENGTH.pack(fresh.tell() + body.tell())
    return length + fresh.getvalue() + body.getvalue(), packer.jobs


def read_work(source: io.BufferedIOBase | Any, known: Jobs) -> tuple[WorkRequest, Jobs]:
    """The request that `pack_work` packed, and its jobs; EOFError if the other side has gone."""
    body = io.BytesIO(read_body(source))
    unpacker = _Finding(body, known | pickle.load(body))  # noqa: S301 - through a pipe of ours
    work: WorkRequest = unpacker.load()
    return work, unpacker.jobs
