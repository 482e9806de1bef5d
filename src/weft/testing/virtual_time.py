"""Hours of a live scheduler in seconds: an event loop whose time jumps to whatever is due next."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar
from unittest.mock import patch

Result = TypeVar("Result")
BEGAN = 1_800_000_000.0  # a whole hour: rounds follow the wall clock, and tests must not
Watched = list[tuple[selectors.SelectorKey, int]]


def run_virtually(main: Callable[[Callable[[], float]], Coroutine[Any, Any, Result]]) -> Result:
    """Run `main` to its end, given the time to pass on as `seconds`.

    Nothing sleeps: when nobody has anything to do, time jumps, and the wall clock with it from
    `BEGAN` on, so that a run is the same whenever it is made. What is sent to a thread is done at
    once in this one.
    """
    loop = _Jumping()
    loop.set_default_executor(_AtOnce(1))
    with (
        patch.object(time, "time", lambda: BEGAN + loop.time()),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(main(loop.time))


class _Jumping(asyncio.SelectorEventLoop):
    """Waiting is passing on the clock."""

    def __init__(self) -> None:
        self._passed = 0.0
        super().__init__(_NoWaiting(self._pass))

    def time(self) -> float:
        """Seconds since the loop began."""
        return self._passed

    def _pass(self, seconds: float) -> None:
        self._passed += seconds


class _NoWaiting(selectors.DefaultSelector):
    """Tells how long it would have waited instead."""

    def __init__(self, waited: Callable[[float], None]) -> None:
        super().__init__()
        self._waited = waited

    def select(self, timeout: float | None = None) -> Watched:
        """What is ready now."""
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everybody waits for ever")
            self._waited(max(timeout, 0.0))
        return ready


class _AtOnce(ThreadPoolExecutor):
    """No thread at all."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it here and now."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # passed to the task that waits for the future
            done.set_exception(error)
        return done
