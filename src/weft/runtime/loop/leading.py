"""While a service leads it renews a lease in its log, for a standby to see."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from weft.core.errors import StoreError, Superseded
from weft.core.protocols import Store
from weft.runtime.loop.background import end_task

log = logging.getLogger(__name__)

BEAT_S = 1.0


class Leading:
    """Renews the lease of `store` from the event loop; `broken` is called when another has it.

    It has a thread of its own: neither a crowd of readers nor a slow disk makes it late for long.
    """

    def __init__(self, store: Store, broken: Callable[[asyncio.Task[None]], None]) -> None:
        self._store, self._broken = store, broken
        self._thread = ThreadPoolExecutor(1, "lease")
        self._task: asyncio.Task[None] | None = None
        self._renewed = time.monotonic()

    @property
    def unrenewed_s(self) -> float:
        """How long ago the lease was renewed; a standby may have taken it if that is long."""
        return time.monotonic() - self._renewed

    def open(self) -> None:
        """Begin."""
        self._renewed = time.monotonic()
        self._task = asyncio.create_task(self._beat())
        self._task.add_done_callback(self._broken)

    async def close(self) -> None:
        """Renew it no more; from now on a standby may lead."""
        await end_task(self._task)
        self._thread.shutdown(wait=True)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._thread, self._store.beat)
                self._renewed = time.monotonic()
            except Superseded:
                raise
            except StoreError as error:
                log.warning("%s", error)
            await asyncio.sleep(BEAT_S)
