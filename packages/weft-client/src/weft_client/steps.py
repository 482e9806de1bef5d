"""Waiting in steps that end with seconds to sleep: threads and coroutines run the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

from weft_client.errors import Unreachable

T = TypeVar("T")
Steps = Generator[float, None, T]

FIRST_S, LONGEST_S = 0.1, 2.0  # between two looks at a job
PATIENCE_S = 120.0  # a service that restarts is back sooner; jobs go on meanwhile
AWAY_S = 0.5  # between two tries to reach one
NEVER = float("inf")


def longer(pause_s: float) -> float:
    """The pause after this one, where nothing has happened."""
    return min(1.5 * pause_s, LONGEST_S)


def patient(ask: Callable[[], T], until: float = NEVER) -> Steps[T]:
    """Ask, again and again while the service is away, but not for ever."""
    until = min(until, time.monotonic() + PATIENCE_S)
    while True:
        try:
            return ask()
        except Unreachable:
            if time.monotonic() >= until:
                raise
            yield AWAY_S


def poll_until(
    ask: Callable[[], T],
    over: Callable[[T], bool],
    timeout: float | None,
    describe: Callable[[T], str],
) -> Steps[T]:
    """Ask until the answer is the last one; TimeoutError after `timeout` seconds."""
    until = NEVER if timeout is None else time.monotonic() + timeout
    pause_s = FIRST_S
    while True:
        try:
            answer = yield from patient(ask, until)
        except Unreachable as error:
            if time.monotonic() < until:
                raise
            raise TimeoutError(f"after {timeout:g} s {error.what}") from error
        if over(answer):
            return answer
        left_s = until - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError(f"{describe(answer)} after {timeout:g} s")
        yield min(pause_s, left_s)
        pause_s = longer(pause_s)


def run(steps: Steps[T]) -> T:
    """The end of these steps, in the thread that calls."""
    while True:
        try:
            pause_s = next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        time.sleep(pause_s)


def patiently(ask: Callable[[], T]) -> T:
    """The answer of a service that may be away for a while."""
    return run(patient(ask))
