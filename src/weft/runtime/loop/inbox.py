"""What a driver was told or asked and has not dealt with yet."""

from __future__ import annotations

import asyncio
from collections import deque

from weft.core.events.event import Event

# Each event, with who waits for it to be on disk; nobody waits for what engines tell.
Asked = deque[tuple[Event, asyncio.Future[None] | None]]


def answer_all(asked: Asked) -> None:
    """It is on disk: tell those who wait, and forget it."""
    for _, answer in asked:
        if answer is not None and not answer.done():
            answer.set_result(None)
    asked.clear()


def fail_all(asked: Asked, error: BaseException) -> None:
    """Tell those who wait that it is not done."""
    for _, answer in asked:
        if answer is not None and not answer.done():
            answer.set_exception(error)
