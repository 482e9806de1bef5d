"""The cluster as it changes: everything at first, then what is different, some twice a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from weft.service.access.tokens import Caller
from weft.service.context import PROBLEMS, Anyone, Context, Service
from weft.service.responses.watch import Watched
from weft.service.routes.cluster.events import while_allowed

router = APIRouter(tags=["events"], responses=PROBLEMS)

STREAM: dict[int | str, dict[str, Any]] = {
    200: {"model": Watched, "content": {"text/event-stream": {}}, "description": "One message."}
}


@router.get("/watch", response_class=StreamingResponse, responses=STREAM)
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
