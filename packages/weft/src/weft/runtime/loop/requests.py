"""From an action to a request of an engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import assert_never

from weft.core.errors import EngineError, WeftError
from weft.core.events.actions import Adjust, OrderMemory, Reject, Resize, Resume, Sleep, Start, Stop
from weft.core.events.event import Awoke, Event, ResizeFailed, SleepFailed, Slept, StartFailed
from weft.core.model.job import JobId
from weft.core.protocols import Engine
from weft.core.stops import PLAN, Rung
from weft.wire.ending import end_if_asked

log = logging.getLogger(__name__)

Request = Start | Stop | Adjust | Resize | Sleep | Resume | OrderMemory | Reject
AGAIN_S = 1.0  # until what the engine or the log could not take is tried again


class Requests:
    """Requests to an engine, until it has taken them.

    `grace_s` is how long a job may take to stop; `post` takes what becomes of a start.
    """

    def __init__(
        self, engine: Engine, grace_s: Callable[[JobId], float], post: Callable[[Event], None]
    ) -> None:
        self._engine, self._grace_s, self._post = engine, grace_s, post
        self._again: set[asyncio.Task[None]] = set()
        self._nights: dict[tuple[JobId, int], asyncio.Task[None]] = {}

    async def carry_out(self, action: Request) -> None:
        """Ask for it. A start or resize that cannot be has failed, all else is tried again.

        Sleeping and waking may take a while: they go on in order, attempt by attempt.
        """
        if isinstance(action, (Sleep, Resume)):
            self._begin(action)
            return
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
        for task in (*self._again, *self._nights.values()):
            task.cancel()

    # ---- sleeping and waking

    def _begin(self, action: Sleep | Resume) -> None:
        """Take it up once whatever was asked of the attempt before is done."""
        job = action.job if isinstance(action, Sleep) else action.job.id
        key = (job, action.attempt)
        before = self._nights.get(key)
        task = asyncio.create_task(self._sleep_or_wake(key, action, before))
        self._nights[key] = task
        task.add_done_callback(partial(self._end, key))

    def _end(self, key: tuple[JobId, int], task: asyncio.Task[None]) -> None:
        if self._nights.get(key) is task:
            del self._nights[key]

    async def _sleep_or_wake(
        self, key: tuple[JobId, int], action: Sleep | Resume, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            before.cancel()  # what is asked now is what counts
            await asyncio.gather(before, return_exceptions=True)
        began = time.monotonic()
        if isinstance(action, Sleep):
            try:
                host_gb = await self._put_to_sleep(key, action.rung)
            except EngineError as error:
                self._post(SleepFailed(*key, str(error)))
                return
            self._post(Slept(*key, action.rung, time.monotonic() - began, host_gb))
            return
        while True:
            end_if_asked()
            try:
                await self._engine.thaw(*key, by=PLAN)
                break
            except EngineError as error:
                log.warning("job=%s attempt=%d is not awake yet: %s", *key, error)
                await asyncio.sleep(AGAIN_S)
        await self._engine.adjust(*key, action.on)
        self._post(Awoke(*key, time.monotonic() - began))

    async def _put_to_sleep(self, key: tuple[JobId, int], rung: Rung) -> float:
        if rung is Rung.SUSPEND:
            return await self._engine.suspend(*key, by=PLAN)
        await self._engine.freeze(*key, by=PLAN)
        return 0.0

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
            case Sleep() | Resume():
                self._begin(action)
            case OrderMemory(order):
                await self._engine.order_memory(order)
            case Reject(job_id, reason):
                log.warning("job=%s rejected: %s", job_id, reason)
            case _:
                assert_never(action)
