"""While a service leads it renews a lease in its log, for a standby to see."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from weft.core.errors import StoreError, Superseded
from weft.core.protocols import Store
from weft.runtime.loop.background import end_task
from weft.wire.ending import end_if_asked

log = logging.getLogger(__name__)

BEAT_S = 1.0
HANGS_S = 30.0  # a loop that did nothing for so long may never do anything again


class Leading:
    """Renews the lease of `store` in a thread of its own; `broken` is called when another has it.

    Neither a busy loop, a crowd of readers nor a slow disk makes it late for long. But a service
    whose loop has not moved for `hangs_s` seconds does not lead: it renews the lease no more until
    the loop moves again. By then a standby may have taken it, and nothing more can be written.
    """

    def __init__(
        self,
        store: Store,
        broken: Callable[[asyncio.Task[None]], None],
        beat_s: float = BEAT_S,
        hangs_s: float = HANGS_S,
    ) -> None:
        self._store, self._broken = store, broken
        self._beat_s, self._hangs_s = beat_s, hangs_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._renewed = self._moved = time.monotonic()

    @property
    def unrenewed_s(self) -> float:
        """Seconds since the lease was renewed; a standby may have taken it if that is long."""
        return time.monotonic() - self._renewed

    def open(self) -> None:
        """Begin, from the event loop."""
        self._renewed = self._moved = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._task = asyncio.create_task(self._move())
        self._task.add_done_callback(self._broken)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Renew it no more; from now on a standby may lead."""
        self._ended.set()
        await end_task(self._task)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def _move(self) -> None:
        """Show the thread that the loop moves; raises what the thread met."""
        while not self._lost.done():
            end_if_asked()
            self._moved = time.monotonic()
            await asyncio.wait({self._lost}, timeout=self._beat_s)
        self._lost.result()

    def _renew(self) -> None:
        hangs = False
        while True:
            still_s = time.monotonic() - self._moved
            if still_s < self._hangs_s:
                hangs = False
                try:
                    self._store.renew_lease()
                    self._renewed = time.monotonic()
                except Superseded as error:
                    self._report(error)
                    return
                except StoreError as error:
                    log.warning("%s", error)
                except Exception as error:
                    self._report(error)
                    return
            elif not hangs:
                hangs = True
                log.error("the loop has not moved for %.0f s: the lease is not renewed", still_s)
            if self._ended.wait(self._beat_s):
                return

    def _report(self, error: Exception) -> None:
        if not self._ended.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: Exception) -> None:
        if not self._ended.is_set():
            self._lost.set_exception(error)
