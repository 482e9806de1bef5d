"""Work that runs beside the loop until it is asked to end."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import ClassVar

from weft.core.errors import WeftError
from weft.wire.ending import end_if_asked, end_tasks

log = logging.getLogger(__name__)


class Repeated(ABC):
    """Does `poll` every `every_s` seconds; `trouble` says what is missing while looks fail."""

    every_s: ClassVar[float]
    trouble: ClassVar[str]
    waits_first: ClassVar[bool] = False
    _task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        await end_task(self._task)

    @abstractmethod
    async def poll(self) -> object:
        """Do one round of the work."""

    @property
    def pause_s(self) -> float:
        """Seconds of the wall clock between turns."""
        return self.every_s

    async def _run(self) -> None:
        if self.waits_first:
            await asyncio.sleep(self.pause_s)
        while True:
            end_if_asked()
            try:
                await self.poll()
            except (OSError, WeftError) as error:
                log.warning("%s: %s", self.trouble, error)
            except Exception:
                log.exception("%s; it is tried again", self.trouble)
            await asyncio.sleep(self.pause_s)


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait until it has ended, whatever it ended with; nothing for none."""
    if task is not None:
        await end_tasks(task)
