"""Following a log: the past first, then the present as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from weft.core.events import Event
from weft.core.ports import Store

READ_AT_ONCE = 500


async def follow(
    store: Store, seq: int, changed: Callable[[], asyncio.Event | None]
) -> AsyncIterator[tuple[int, float, Event]]:
    """Every event after number `seq`; `changed` gives what is set at the next append.

    Ends when everything was read and `changed` gives None.
    """
    while True:
        news = changed()  # before reading, so that nothing is missed between
        found = await asyncio.to_thread(store.since, seq, READ_AT_ONCE)
        for one in found:
            yield one
            seq = one[0]
        if not found:
            if news is None:
                return
            await news.wait()
