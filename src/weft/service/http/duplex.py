"""A request and its answer at the same time: bytes both ways over one HTTP request.

The client sends its body in chunks as it goes, and reads the answer's chunks meanwhile. So tokens,
limits and the audit log hold as for any other request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weft.service.access.rate_limit import Streams
from weft.service.access.tokens import Caller

CHUNK = 1 << 16
RECHECK_S = 5.0
BYTES = "application/octet-stream"


class Duplex(Response):
    """What a stream says is the answer, and what the client sends goes to the stream.

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
