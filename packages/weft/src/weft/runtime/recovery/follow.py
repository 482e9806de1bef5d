"""Following a log: the past first, then the present as it is written.

Followers that are up to date are served from memory, so that a thousand followers cost the log
nothing; the past is read in threads of its own, so that they never hold up the writer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from weft.core.events.event import Event
from weft.core.protocols import Store

READ_AT_ONCE = 500
KEPT = 5_000
READERS = 2

Row = tuple[int, float, Event]


class Tail:
    """The end of a log, in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: deque[Row] = deque(maxlen=KEPT)
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="log")

    def add(self, seq: int, at: float, event: Event) -> None:
        """The next event, which is on disk; those before it may have been read from there."""
        if self._rows and seq != self._rows[-1][0] + 1:
            self._rows.clear()
        self._rows.append((seq, at, event))

    async def after(self, seq: int) -> list[Row]:
        """Some events after number `seq`, none if it is the last."""
        rows = self._rows
        if rows and rows[0][0] <= seq + 1:
            return list(islice(rows, seq + 1 - rows[0][0], seq + 1 - rows[0][0] + READ_AT_ONCE))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._store.since, seq, READ_AT_ONCE)


async def follow(
    tail: Tail, seq: int, changed: Callable[[], asyncio.Event | None]
) -> AsyncIterator[list[Row]]:
    """Every event after number `seq`, some at a time; `changed` gives what an append sets next.

    Ends when everything was read and `changed` gives None.
    """
    while True:
        news = changed()  # before reading, so that nothing is missed between
        rows = await tail.after(seq)
        if rows:
            seq = rows[-1][0]
            yield rows
        elif news is None:
            return
        else:
            await news.wait()
