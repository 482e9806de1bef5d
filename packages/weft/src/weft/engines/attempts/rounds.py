"""The tasks of an engine: rounds that go on forever, whatever goes wrong in one of them.

The chief one goes through the engine's attempts and tells what their agents wrote. What goes wrong
with one attempt is its own: all the others are read and settled in the same turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from weft.core.events.event import Event
from weft.core.model.job import JobId
from weft.engines.attempts.health_board import AgentHealth, HealthBoard
from weft.wire.ending import end_if_asked, end_tasks

log = logging.getLogger(__name__)

AGAIN_S = 1.0  # after a round that failed
# What is not the doing of one attempt: no space, too many open files, no memory, a broken disk.
MACHINE_WIDE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO}
)

Key = tuple[JobId, int]  # job and attempt
Chore = Callable[[], Awaitable[None]]


@dataclass
class BackgroundTasks:
    """Tasks that end with the engine; `troubles` are shown to people in its health."""

    troubles: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def begin(self, what: str, chore: Chore) -> None:
        """Do a chore again and again; `what` it does, in words for people."""
        self.spawn(self._repeat(what, chore))

    def spawn(self, what: Coroutine[Any, Any, None]) -> None:
        """Run `what` as a task that ends with the engine."""
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await end_tasks(*self._tasks)

    async def _repeat(self, what: str, chore: Chore) -> None:
        """Report an error in `troubles`, and go on."""
        while True:
            end_if_asked()
            try:
                await chore()
            except Exception as error:
                log.exception("cannot %s; trying again", what)
                self.troubles[what] = f"the engine cannot {what}: {error}"
                await asyncio.sleep(AGAIN_S)
            else:
                self.troubles.pop(what, None)


async def pause(event: asyncio.Event, at_most_s: float) -> None:
    """Until the event is set, which is then taken back, or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):  # wait_for may swallow a cancellation
            await event.wait()
    event.clear()


class Monitored(Protocol):
    """An attempt whose end has not been reported yet; nothing is reported of a `silent` one."""

    silent: bool

    @property
    def health(self) -> list[AgentHealth]:
        """Reports of its agents about devices that have not been processed yet."""
        ...

    @property
    def has_unread_log(self) -> bool:
        """True if an agent's log was not read to its end."""
        ...

    def poll_events(self, now: float) -> Iterable[Event]:
        """New events of it; afterwards it may be over. Raises what is wrong with it."""
        ...


M = TypeVar("M", bound=Monitored)
T = TypeVar("T")


@dataclass
class AttemptLoop(ABC, Generic[M]):
    """The attempts below the folder `root`; `told` takes their news, `left` that one is over."""

    root: Path
    told: Callable[[Event], None]
    left: Callable[[Key], None]
    watched: dict[Key, M] = field(init=False, default_factory=dict)
    board: HealthBoard = field(init=False, default_factory=HealthBoard)
    _rounds: BackgroundTasks = field(init=False, default_factory=BackgroundTasks)
    _poke: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="weft-engine")

    async def run(self, what: Callable[[], T]) -> T:
        """Call `what` in a thread that nothing else waits for."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, what)

    def read_soon(self) -> None:
        """Read what agents write as soon as may be."""
        self._poke.set()

    async def close(self) -> None:
        """Stop listening; agents go on."""
        await self._rounds.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _await_news(self, at_most_s: float) -> None:
        if any(attempt.has_unread_log for attempt in self.watched.values()):
            self._poke.clear()
        else:
            await pause(self._poke, at_most_s)

    async def _read_all(self, attempts: Mapping[Key, M]) -> list[Exception]:
        """Tell what is new of these and settle each; what went wrong that is not its own doing."""
        now, wrong = time.monotonic(), []
        news = await self.run(lambda: [_read_news(attempt, now) for attempt in attempts.values()])
        for (key, attempt), (events, error) in zip(attempts.items(), news, strict=True):
            if self.watched.get(key) is not attempt:
                continue  # it was forgotten meanwhile
            for event in events if not attempt.silent else ():
                self.told(event)
            self.board.add_lines(key, attempt.health)
            attempt.health.clear()
            try:
                await self._settle(attempt, error, now)
            except Exception as machine_wide:
                wrong.append(machine_wide)
        return wrong

    @abstractmethod
    async def _settle(self, attempt: M, error: Exception | None, now: float) -> None:
        """Act on all that is known about an attempt, and on an error in reading it."""


def _read_news(attempt: Monitored, now: float) -> tuple[list[Event], Exception | None]:
    """News of one attempt, and what is wrong with it: anything may be."""
    events: list[Event] = []
    try:
        for event in attempt.poll_events(now):
            events.append(event)  # noqa: PERF402 - those before an error count
    except Exception as error:
        return events, error
    return events, None
