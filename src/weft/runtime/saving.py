"""Snapshots at their pace: one at a time, in parts, so that nobody waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from weft.core.errors import WeftError
from weft.core.ports import Store
from weft.runtime.recover import Recovered, freeze
from weft.runtime.snapshot import Frozen

log = logging.getLogger(__name__)

PAUSE_S = 0.01  # between parts of a snapshot
JOBS_A_EVENT = 4  # the more jobs there are the rarer a snapshot, so that it costs a part of a turn


class Saver:
    """Writes a snapshot whenever `every` events have come since the last."""

    def __init__(self, store: Store, every: int) -> None:
        self._store = store
        self._every = self._at = every
        self._task: asyncio.Task[None] | None = None

    def look(self, known: Recovered, broken: Callable[[asyncio.Task[None]], None]) -> None:
        """Between two turns: begin a snapshot if one is due."""
        if known.seq >= self._at and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._write(*self._freeze(known), PAUSE_S))
            self._task.add_done_callback(broken)

    async def finish(self, known: Recovered | None) -> None:
        """Wait for what is being written, then write `known` if it is given."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if known is not None:
            await self._write(*self._freeze(known), 0.0)

    def _freeze(self, known: Recovered) -> tuple[int, Frozen]:
        """The present moment: in a turn the scheduler is ahead of what is written down."""
        self._at = known.seq + max(self._every, len(known.ledger.jobs) // JOBS_A_EVENT)
        return known.seq, freeze(known)

    async def _write(self, seq: int, frozen: Frozen, pause_s: float) -> None:
        """In parts; one that cannot be written is only a slower next start."""
        parts = []
        for part in frozen.parts():
            parts.append(part)
            await asyncio.sleep(pause_s)
        try:
            whole = await asyncio.to_thread(frozen.whole, parts)
            await asyncio.to_thread(self._store.save, seq, whole)
        except WeftError as error:
            log.warning("snapshot=%d not written: %s", seq, error.what)
