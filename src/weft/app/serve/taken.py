"""Devices that jobs of others hold are given to nobody until they are free again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from weft.app.serve.rules import Quotas
from weft.core.errors import WeftError
from weft.core.protocols import Engine
from weft.runtime.loop.background import end_task

log = logging.getLogger(__name__)

TAKEN = "taken:"  # names of windows that no person wrote
EVERY_S = 3.0


class TakenDevices:
    """Keeps windows in step with what an engine sees of jobs that are not ours."""

    def __init__(
        self,
        engine: Engine,
        quotas: Callable[[], Quotas],
        change: Callable[[Quotas], Awaitable[None]],
    ) -> None:
        self._engine, self._quotas, self._change = engine, quotas, change
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Windows stay as they are until the next start."""
        await end_task(self._task)

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except WeftError as error:
                log.warning("what jobs of others hold is not noted yet: %s", error.what)
            await asyncio.sleep(EVERY_S)

    async def _look(self) -> None:
        quotas = self._quotas()
        wanted = {f"{TAKEN}{node}": text for node, text in self._engine.health.taken.items()}
        present = {name: text for name, text in quotas.windows.items() if name.startswith(TAKEN)}
        if wanted == present:
            return
        log.info("jobs of others hold: %s", ", ".join(wanted.values()) or "nothing")
        quotas = quotas.without_windows(*present)
        for name, text in wanted.items():
            quotas = quotas.with_window(name, text)
        await self._change(quotas)
