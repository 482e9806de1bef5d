"""The tasks of an engine: rounds that go on for ever, whatever goes wrong in one of them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

AGAIN_S = 1.0  # after a round that failed
# What is not the doing of one attempt: no space, too many open files, no memory, a broken disk.
EVERYBODYS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO}
)

Turn = Callable[[], Awaitable[None]]


@dataclass
class Rounds:
    """Tasks that end with the engine; `troubles` are what people are told in its health."""

    troubles: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def begin(self, what: str, turn: Turn) -> None:
        """Take turn after turn; `what` they do, in words for people."""
        self.spawn(self._for_ever(what, turn))

    def spawn(self, what: Coroutine[Any, Any, None]) -> None:
        """As a task that ends with the engine."""
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all tasks."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _for_ever(self, what: str, turn: Turn) -> None:
        """What goes wrong in a turn is told in `troubles` and tried again."""
        while True:
            try:
                await turn()
            except Exception as error:
                log.exception("cannot %s; trying again", what)
                self.troubles[what] = f"the engine cannot {what}: {error}"
                await asyncio.sleep(AGAIN_S)
            else:
                self.troubles.pop(what, None)


async def pause(event: asyncio.Event, at_most_s: float) -> None:
    """Until the event is set, which is then taken back, or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):  # wait_for may swallow a cancellation
            await event.wait()
    event.clear()
