"""Devices that jobs of others hold are given to nobody until they are free again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from weft.app.serve.rules import Quotas
from weft.core.protocols import Engine
from weft.runtime.loop.background import Repeated

log = logging.getLogger(__name__)

TAKEN = "taken:"  # names of windows that no person wrote


class TakenDevices(Repeated):
    """Keeps windows in step with what an engine sees of jobs that are not ours.

    After `close` windows stay as they are until the next start.
    """

    every_s = 3.0
    trouble = "what jobs of others hold is not noted yet"

    def __init__(
        self,
        engine: Engine,
        quotas: Callable[[], Quotas],
        change: Callable[[Quotas], Awaitable[None]],
    ) -> None:
        self._engine, self._quotas, self._change = engine, quotas, change

    async def look(self) -> None:
        """Open and end windows as those jobs come and go."""
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
