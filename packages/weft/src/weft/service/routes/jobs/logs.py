"""Output of jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from weft.app.files import open_output
from weft.core.model.job import JobId
from weft.service.access.redaction import longest, mask_bytes, secrets_of
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service, find_job
from weft.service.http.replies import HttpProblem, Json
from weft.service.responses.watch import LogRanks

router = APIRouter(prefix=PREFIX, tags=["jobs"], responses=PROBLEMS)

CHUNK = 1 << 16
POLL_S = 0.2
SHOWN = 8  # ranks in an error
TEXT_TYPE = "text/plain; charset=utf-8"
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/jobs/{job_id}/logs", response_class=StreamingResponse, responses=TEXT)
async def logs(
    job_id: str,
    service: Service,
    who: Anyone,
    rank: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000_000)] = None,
    offset: Annotated[int, Query(ge=0, le=1 << 50, description="Bytes to leave out.")] = 0,
    follow: Annotated[bool, Query(description="Go on until the attempt has ended.")] = False,
) -> StreamingResponse:
    """The output of one rank of an attempt; default: the last attempt."""
    record = find_job(service, who, job_id).record
    number = attempt or record.attempt
    paths = service.driver.engine.logs(record.job.id, number)
    if rank not in paths:
        some = ", ".join(map(str, sorted(paths)[:SHOWN])) + ", ..." * (len(paths) > SHOWN)
        there = f"these ranks have: {some}" if paths else "none has"
        raise HttpProblem(
            404, f"rank {rank} of attempt {number} has printed nothing", f"{there} so far"
        )
    path = paths[rank]
    read = partial(read_masked, path, secrets=secrets_of(record.job))
    body = _read(service, who, record.job.id, number, read, offset, follow=follow)
    if follow:
        return service.streams.response(who, body, TEXT_TYPE)
    return StreamingResponse(body, media_type=TEXT_TYPE)


@router.get("/jobs/{job_id}/logs/ranks", response_model=LogRanks)
async def log_ranks(
    job_id: str,
    service: Service,
    who: Anyone,
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000_000)] = None,
) -> Json:
    """The ranks of an attempt that have printed something so far; default: the last attempt."""
    record = find_job(service, who, job_id).record
    number = attempt or record.attempt
    paths = service.driver.engine.logs(record.job.id, number)
    return Json(LogRanks(attempt=number, ranks=sorted(paths)))


async def _read(
    service: Context,
    who: Caller,
    job: JobId,
    attempt: int,
    read: Callable[[int], bytes],
    offset: int,
    *,
    follow: bool,
) -> AsyncIterator[bytes]:
    while service.tokens.allows(who):
        over = not follow or _over(service, job, attempt)
        while chunk := await service.read(partial(read, offset)):
            offset += len(chunk)
            yield chunk
        if over:
            return
        await asyncio.sleep(POLL_S)


def _over(service: Context, job: JobId, attempt: int) -> bool:
    record = service.driver.ledger.jobs[job]
    return bool(record.outcome) or record.attempt > attempt


def read_masked(path: Path, offset: int, secrets: Sequence[str] = ()) -> bytes:
    """Bytes of `read_at`, with stars for secrets, also where a piece cuts one."""
    if not secrets:
        return read_at(path, offset)
    before = min(longest(secrets), offset)
    data = read_at(path, offset - before)
    more = len(data) == CHUNK  # what follows may belong to a secret that begins here
    end = len(data) - longest(secrets) if more else len(data)
    return mask_bytes(data, secrets)[before : max(end, before)]


def read_at(path: Path, offset: int) -> bytes:
    """Bytes of a log from `offset` on; a file that was put aside when it grew comes first."""
    aside = path.with_name(path.name + ".1")
    before = _size(aside)
    if offset < before:
        return _part(aside, offset)
    return _part(path, offset - before)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _part(path: Path, offset: int) -> bytes:
    handle = open_output(path)
    if handle is None:
        return b""
    try:
        return os.pread(handle, CHUNK, offset)
    finally:
        os.close(handle)
