"""Snapshots at their pace: one at a time, in parts, so that no request waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from weft.core.errors import WeftError
from weft.core.protocols import Store
from weft.runtime.recovery.recover import Recovered, freeze
from weft.runtime.recovery.snapshot import FrozenState, fingerprint

log = logging.getLogger(__name__)

PAUSE_S = 0.01  # between parts of a snapshot
JOBS_A_EVENT = 4  # the more jobs there are the rarer a snapshot, so that it costs a part of a turn


class SnapshotSaver:
    """Writes a snapshot whenever `every` events have come since the last, of this run or before."""

    def __init__(self, store: Store, every: int) -> None:
        self.wants_base: Callable[[int, float], bool] = lambda _seq, _at: False
        self._store = store
        self._every, self._last, self._soon = every, 0, False
        self._task: asyncio.Task[None] | None = None
        self._base: asyncio.Task[None] | None = None

    def start_if_due(self, known: Recovered, broken: Callable[[asyncio.Task[None]], None]) -> None:
        """Between two turns: begin a snapshot if one is due."""
        jobs = len(known.ledger.jobs.live)
        due = max(self._last, known.saved) + max(self._every, jobs // JOBS_A_EVENT)
        if (self._soon or known.seq >= due) and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._write(*self._freeze(known), PAUSE_S))
            self._task.add_done_callback(broken)

    def save_soon(self) -> None:
        """Let a snapshot be due after the next turn."""
        self._soon = True

    def take_base(self, known: Recovered, broken: Callable[[asyncio.Task[None]], None]) -> None:
        """Before a policy begins without memory: a point that the log can go on from, if wanted."""
        if not self.wants_base(known.seq, known.at):
            return
        frozen = freeze(known, active_only=True)
        self._base = asyncio.create_task(self._write_base(known.seq, known.at, frozen))
        self._base.add_done_callback(broken)

    async def base_written(self) -> None:
        """Wait until the last base is on disk."""
        if self._base is not None:
            await asyncio.gather(self._base, return_exceptions=True)

    async def finish(self, known: Recovered | None) -> None:
        """Wait for what is being written, then write `known` if it is given."""
        await self.base_written()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if known is not None:
            await self._write(*self._freeze(known), 0.0)

    def _freeze(self, known: Recovered) -> tuple[int, FrozenState]:
        """The present moment: in a turn the scheduler is ahead of what is written down."""
        self._last, self._soon = known.seq, False
        return known.seq, freeze(known)

    async def _write_base(self, seq: int, at: float, frozen: FrozenState) -> None:
        try:
            whole = await asyncio.to_thread(lambda: frozen.whole([*frozen.parts()]))
            await asyncio.to_thread(self._store.keep_base, seq, at, whole)
        except WeftError as error:
            log.warning("base=%d not written: %s", seq, error.what)

    async def _write(self, seq: int, frozen: FrozenState, pause_s: float) -> None:
        """In parts; one that cannot be written is only a slower next start."""
        await asyncio.to_thread(fingerprint)  # it reads all of the code, once
        parts = []
        for part in frozen.parts():
            parts.append(part)
            await asyncio.sleep(pause_s)
        try:
            whole = await asyncio.to_thread(frozen.whole, parts)
            await asyncio.to_thread(self._store.save, seq, whole)
        except WeftError as error:
            log.warning("snapshot=%d not written: %s", seq, error.what)
