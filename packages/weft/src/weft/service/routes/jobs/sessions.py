"""Sessions: a job's terminal, and ports that it listens on, for its owner."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weft.core.protocols import Sessions, Way
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.status import JobStatus
from weft.service.access.rate_limit import Streams
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Context, Service, Writer, find_job
from weft.service.http.replies import HttpProblem

# ---- A request and its answer at the same time: bytes both ways over one HTTP request
#
# The client sends its body in chunks as it goes, and reads the answer's chunks meanwhile. So
# tokens, limits and the audit log hold as for any other request.


CHUNK = 1 << 16
RECHECK_S = 5.0
BYTES = "application/octet-stream"


class Duplex(Response):
    """A response that sends what a stream says, and the stream gets what the client sends.

    It ends with either of them, or when `allowed` says no more.
    """

    media_type = BYTES

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        who: Caller,
        streams: Streams,
        allowed: Callable[[], bool],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._reader, self._writer = reader, writer
        self._who, self._streams, self._allowed = who, streams, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Carry bytes both ways until one side has gone."""
        self._streams.open[self._who.tenant] += 1
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            tasks = [
                asyncio.ensure_future(self._to_client(send)),
                asyncio.ensure_future(self._from_client(receive)),
                asyncio.ensure_future(self._watch()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if (
                    tasks[1].done() and not tasks[0].done()
                ):  # the client has said all: hear the rest
                    await asyncio.wait(tasks[:1], timeout=RECHECK_S)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(OSError):
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._streams.open[self._who.tenant] -= 1
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()

    async def _to_client(self, send: Send) -> None:
        with suppress(ConnectionError):
            while chunk := await self._reader.read(CHUNK):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _from_client(self, receive: Receive) -> None:
        with suppress(ConnectionError):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return
                if body := message.get("body", b""):
                    self._writer.write(body)
                    await self._writer.drain()
                if not message.get("more_body", False):
                    if self._writer.can_write_eof():
                        self._writer.write_eof()
                    return

    async def _watch(self) -> None:
        while self._allowed():
            await asyncio.sleep(RECHECK_S)


# ---- Sessions


router = APIRouter(prefix=PREFIX, tags=["sessions"], responses=PROBLEMS)

TALK: dict[int | str, dict[str, Any]] = {
    200: {"content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}
}
Pipes = tuple[StreamReader, StreamWriter]
Port = Annotated[int, Path(ge=1, le=65_535)]


@router.post("/jobs/{job_id}/terminal", response_class=Response, responses=TALK)
async def terminal(job_id: str, request: Request, service: Service, who: Writer) -> Duplex:
    """A job's terminal: the body streams what is typed, the answer streams what is printed.

    Both are frames: a letter, four bytes of length, and bytes. `d` is data, `r` the window's size
    as `ROWS COLUMNS`, `e` the end of what is typed, `x` the exit code, with which it ends.
    """
    status, sessions = find_own(service, who, job_id)
    record = status.record
    request.state.about = record.job.id
    streams = await _connect(service, who, sessions, record, "terminal")
    if streams is None:
        has = record.job.launch is not None and record.job.launch.pty
        raise HttpProblem(
            409,
            f"job {record.job.id!r} has no terminal" + (f" while it is {status.state}" * has),
            "" if has else "`weft run --pty` and `weft shell` start jobs with one",
        )
    return _talk(service, who, streams)


@router.post("/jobs/{job_id}/shell", response_class=Response, responses=TALK)
async def shell(job_id: str, request: Request, service: Service, who: Writer) -> Duplex:
    """A new shell beside a running job: on its machine, with its folder, variables and devices.

    The body and the answer are frames, as of `terminal`. It ends with the connection and the job.
    """
    status, sessions = find_own(service, who, job_id)
    record = status.record
    request.state.about = record.job.id
    running = status.state == "running"
    streams = await _connect(service, who, sessions, record, "shell") if running else None
    if streams is None:
        raise HttpProblem(409, f"job {record.job.id!r} takes no shell while it is {status.state}")
    return _talk(service, who, streams)


@router.post("/jobs/{job_id}/ports/{port}", response_class=Response, responses=TALK)
async def forward(
    job_id: str, port: Port, request: Request, service: Service, who: Writer
) -> Duplex:
    """One connection to a port that the job's processes listen on; bytes in both directions."""
    status, sessions = find_own(service, who, job_id)
    record = status.record
    request.state.about = record.job.id
    streams = await _connect(service, who, sessions, record, port)
    if streams is None:
        raise HttpProblem(
            409,
            f"no process of job {record.job.id!r} listens on port {port}",
            f"it is {status.state}; `weft logs {record.job.id}` may say on which it does",
        )
    return _talk(service, who, streams)


def find_own(service: Context, who: Caller, job_id: str) -> tuple[JobStatus, Sessions]:
    """A job of the caller's own, on an engine that has sessions; Refused otherwise."""
    status = find_job(service, who, job_id)
    job = status.record.job
    account = job.launch.account if job.launch else ""
    own = who.account == account and (not who.name or who.name == job.user)
    if not who.admin and not (who.commands(job) and own):
        raise HttpProblem(403, f"job {job.id!r} is {job.user or 'someone'}'s", "ask its owner")
    sessions = service.driver.engine.sessions
    if sessions is None:
        raise HttpProblem(409, "the jobs of this engine have no terminals and no ports")
    return status, sessions


async def _connect(
    service: Context, who: Caller, sessions: Sessions, record: JobRecord, to: Way
) -> Pipes | None:
    service.streams.check(who)
    try:
        return await sessions.connect(record.job.id, record.attempt, to)
    except OSError as error:
        raise HttpProblem(409, f"it cannot be reached: {error.strerror or error}", "") from error


def _talk(service: Context, who: Caller, streams: Pipes) -> Duplex:
    allowed = partial(service.tokens.allows, who)
    return Duplex(*streams, who=who, streams=service.streams, allowed=allowed)
