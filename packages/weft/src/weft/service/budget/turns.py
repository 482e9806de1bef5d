"""Measures every turn of the service's loop, and names those that kept others waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, CoroutineType, FrameType
from typing import Any

from weft.service.budget.purse import RequestPurse, purse_here

log = logging.getLogger(__name__)

LONG_S = 0.1  # of CPU time: as long as a turn may take
STUCK_S = 1.0  # of the clock: it waited for something, or the machine is busy

Step = Callable[..., Any]


class LoopTurns:
    """Counts turns that took too long, by route and tenant; `longest_s` is of CPU time.

    What is done for no request is counted by the name of its function, without a tenant.
    """

    def __init__(self) -> None:
        self.long: Counter[tuple[str, str]] = Counter()
        self.longest_s = 0.0

    def open(self) -> None:
        """Measure every task of this loop that begins from now on."""
        asyncio.get_running_loop().set_task_factory(self._make_task)

    def close(self) -> None:
        asyncio.get_running_loop().set_task_factory(None)

    def record_turn(
        self, purse: RequestPurse | None, work: CoroutineType[Any, Any, Any], cpu_s: float, s: float
    ) -> None:
        """One turn: what it was, its CPU time, and how long it took."""
        if purse is not None:
            purse.spent_s += cpu_s
        self.longest_s = max(self.longest_s, cpu_s)
        if cpu_s < LONG_S and s < STUCK_S:
            return
        name = work.__qualname__ if purse is None else purse.route
        tenant = "" if purse is None else purse.tenant
        if cpu_s >= LONG_S:
            self.long[name, tenant] += 1
        log.warning(
            "long turn of the loop: route=%r tenant=%r cpu_ms=%.0f passed_ms=%.0f",
            *(name, tenant, cpu_s * 1e3, s * 1e3),
        )

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **more: Any,
    ) -> asyncio.Task[Any]:
        if isinstance(work, CoroutineType):
            work = _Measured(work, self)
        return asyncio.Task(work, loop=loop, **more)


class _Measured(Coroutine[Any, Any, Any]):
    """A coroutine whose every step is measured; all else is as in the coroutine itself."""

    def __init__(self, work: CoroutineType[Any, Any, Any], turns: LoopTurns) -> None:
        self._work, self._turns = work, turns
        self.__name__, self.__qualname__ = work.__name__, work.__qualname__

    def send(self, value: Any, /) -> Any:
        """Send `value` to the coroutine, which runs until it waits again."""
        return self._step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        """Go on with an exception: it alone, or as its kind, itself and its trace."""
        return self._step(self._work.throw, error[0] if len(error) == 1 else error[1])

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    # For those who look at tasks.

    @property
    def cr_frame(self) -> FrameType | None:
        return self._work.cr_frame

    @property
    def cr_code(self) -> CodeType:
        return self._work.cr_code

    @property
    def cr_running(self) -> bool:
        """True while a step is under way."""
        return self._work.cr_running

    @property
    def cr_suspended(self) -> bool:
        return self._work.cr_suspended

    @property
    def cr_await(self) -> Any:
        return self._work.cr_await

    def _step(self, step: Step, value: Any) -> Any:
        purse = purse_here()
        passed, began = time.perf_counter(), time.thread_time()
        if purse is not None:
            purse.step_began = began
        try:
            return step(value)
        finally:
            spent_s = time.thread_time() - began
            self._turns.record_turn(
                purse or purse_here(), self._work, spent_s, time.perf_counter() - passed
            )
