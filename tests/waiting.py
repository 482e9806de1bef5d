"""Wait for what happens in its own time."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from subprocess import Popen
from typing import TypeVar

Sign = TypeVar("Sign")

LIMIT_S = 600.0  # on a busy machine
FIRST_S, MOST_S = 0.02, 0.1  # between looks, which cost a processor as well


def wait_until(true: Callable[[], Sign], what: str = "", limit_s: float = LIMIT_S) -> Sign:
    """What `true` says when it says something; AssertionError after `limit_s`."""
    end, pause_s = time.monotonic() + limit_s, FIRST_S
    while not (sign := true()):
        assert time.monotonic() < end, what or f"it did not happen within {limit_s:g} s"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.25, MOST_S)
    return sign


async def until(true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """The same for those who let others work meanwhile; TimeoutError after `limit_s`."""
    async with asyncio.timeout(limit_s):
        while not true():
            await asyncio.sleep(0.02)


def read_address(service: Popen[str]) -> str:
    """Where a service that was just started listens, as it prints."""
    assert service.stdout is not None
    text = ""
    while not (match := re.search(r"http://[\d.]+:\d+", text)):
        line = service.stdout.readline()
        assert line, text
        text += line
    return match[0]
