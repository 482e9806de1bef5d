"""The log as it grows, and the cluster as it changes: server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from weft.core.events.event import Event
from weft.service.access.tokens import Caller, TokenFile
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service
from weft.service.http.replies import HttpProblem
from weft.service.responses.watch import Watched

router = APIRouter(prefix=PREFIX, tags=["events"], responses=PROBLEMS)

STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
PACE_S = 0.002
PART = 64 * 1024  # of text that is written before others are let in
T = TypeVar("T")
Row = tuple[int, float, Event]


@router.get("/events", response_class=StreamingResponse, responses=STREAM)
async def events(
    service: Service,
    who: Anyone,
    since: Annotated[int | None, Query(ge=0, le=1 << 60)] = None,
    follow: Annotated[
        bool, Query(description="Keep the connection open and send new events.")
    ] = True,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> StreamingResponse:
    """All events after a sequence number: first past ones, then new ones as they happen.

    The number is `Last-Event-ID` (what a browser sends when it comes back) or `since`; without
    one the stream begins now. Comments keep idle connections open.
    """
    start = _start(service, since, last_event_id)
    body = stream(service, who, start, follow=follow)
    return service.streams.response(who, body, "text/event-stream")


async def stream(service: Context, who: Caller, start: int, *, follow: bool) -> AsyncIterator[str]:
    """Events as a browser's EventSource reads them, with heartbeats in between."""
    last = service.driver.seq
    yield f": weft, events {start + 1} to {last} come first\n\n"
    if not follow and start >= last:
        return
    source = service.driver.subscribe(start)
    async for rows in while_allowed(service.tokens, who, source, service.heartbeat_s):
        if rows is None:
            yield ": still here\n\n"
            continue
        for part in parts_of(service.rendered.text(service.driver, who, row) for row in rows):
            yield part
            await asyncio.sleep(0.0)  # others in between: a past of long events took 137 ms
        if not follow and rows[-1][0] >= last:
            return
        # The more there are, the less often each is served: what came meanwhile goes at once.
        await asyncio.sleep(PACE_S * service.streams.open.total())
    if not service.tokens.allows(who):
        yield ": the token is no longer valid\n\n"


def parts_of(texts: Iterable[str]) -> Iterator[str]:
    """Texts joined until they are long enough to be sent."""
    part: list[str] = []
    long = 0
    for text in texts:
        part.append(text)
        long += len(text)
        if long >= PART:
            yield "".join(part)
            part, long = [], 0
    if long:
        yield "".join(part)


async def while_allowed(
    tokens: TokenFile, who: Caller, source: AsyncIterator[T], every_s: float
) -> AsyncIterator[T | None]:
    """Items of `source`, and None whenever nothing has come for a while; until `who` must go."""
    following: asyncio.Task[T] | None = None
    change = asyncio.ensure_future(tokens.change_of(who).wait())
    try:
        while left_s := tokens.seconds_left(who):
            if change.done():
                change = asyncio.ensure_future(tokens.change_of(who).wait())
            following = following or asyncio.ensure_future(anext(source))
            await asyncio.wait(
                [following, change],
                timeout=min(every_s, left_s),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not following.done():
                if not change.done():
                    yield None
                continue
            try:
                row = following.result()
            except StopAsyncIteration:
                return
            following = None
            yield row
    finally:
        change.cancel()
        if following is not None:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await following


def _start(service: Context, since: int | None, last: str | None) -> int:
    if last is not None and last.strip():
        if not (last.isascii() and last.strip().isdigit()):
            raise HttpProblem(422, "Last-Event-ID is not a number", "", "Last-Event-ID")
        return int(last)
    return service.driver.seq if since is None else since


WATCHED: dict[int | str, dict[str, Any]] = {
    200: {"model": Watched, "content": {"text/event-stream": {}}, "description": "One message."}
}


@router.get("/watch", response_class=StreamingResponse, responses=WATCHED)
async def watch(
    service: Service,
    who: Anyone,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> StreamingResponse:
    """Jobs, machines and reasons as server-sent events: a `snapshot`, then every `update`.

    A client that returns with `Last-Event-ID` gets what changed meanwhile, if that is still known.
    """
    body = messages(service, who, last_event_id or "")
    return service.streams.response(who, body, "text/event-stream")


async def messages(service: Context, who: Caller, last: str) -> AsyncIterator[bytes]:
    """Messages with heartbeats in between, until the caller must go."""
    source = service.live_updates.follow(who, last)
    try:
        async for message in while_allowed(service.tokens, who, source, service.heartbeat_s):
            yield b": still here\n\n" if message is None else message
    finally:
        await source.aclose()
