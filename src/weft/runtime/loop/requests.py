"""From an action to a request of an engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import assert_never

from weft.core.errors import EngineError, WeftError
from weft.core.events.actions import Adjust, Reject, Resize, Start, Stop
from weft.core.events.event import Event, ResizeFailed, StartFailed
from weft.core.model.job import JobId
from weft.core.protocols import Engine

log = logging.getLogger(__name__)

Request = Start | Stop | Adjust | Resize | Reject
AGAIN_S = 1.0  # until what the engine or the log could not take is tried again


class Requests:
    """What is asked of an engine, until it has taken it.

    `grace_s` is how long a job may take to stop; `post` takes what becomes of a start.
    """

    def __init__(
        self, engine: Engine, grace_s: Callable[[JobId], float], post: Callable[[Event], None]
    ) -> None:
        self._engine, self._grace_s, self._post = engine, grace_s, post
        self._again: set[asyncio.Task[None]] = set()

    async def carry_out(self, action: Request) -> None:
        """Ask for it. A start or resize that cannot be has failed, all else is tried again."""
        try:
            await self._act(action)
        except WeftError as error:
            if isinstance(action, Start):
                lost = isinstance(error, EngineError)  # not the job's doing
                self._post(StartFailed(action.job.id, action.attempt, str(error), lost))
                return
            if isinstance(action, Resize):
                why = f"it cannot be asked to change its devices: {error}"
                self._post(ResizeFailed(action.job.id, action.attempt, action.epoch, why))
                return
            log.warning("%s is tried again: %s", action, error)
            again = asyncio.create_task(self._later(action))
            self._again.add(again)
            again.add_done_callback(self._again.discard)

    def cancel(self) -> None:
        """Try nothing again."""
        for task in self._again:
            task.cancel()

    async def _later(self, action: Request) -> None:
        await asyncio.sleep(AGAIN_S)
        await self.carry_out(action)

    async def _act(self, action: Request) -> None:
        match action:
            case Start(job, on, attempt):
                await self._engine.start(job, on, attempt)
            case Stop(job_id, attempt):
                await self._engine.stop(job_id, attempt, self._grace_s(job_id))
            case Adjust(job_id, attempt, to):
                await self._engine.adjust(job_id, attempt, to)
            case Resize(job, attempt, to, epoch):
                await self._engine.resize(job, to, attempt, epoch)
            case Reject(job_id, reason):
                log.warning("job=%s rejected: %s", job_id, reason)
            case _:
                assert_never(action)
