"""Ends tasks and processes when they are asked to, whatever they are in the middle of."""

from __future__ import annotations

import asyncio
import contextlib

AGAIN_S = 1.0


def end_if_asked() -> None:
    """Raise CancelledError if this task was cancelled, whatever the cancellation turned into.

    A loop that goes on after errors calls it before each turn: what a turn does while it is
    cancelled may raise something else instead, and the loop would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end_tasks(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks until all have ended, whatever they ended with."""
    left = {*tasks}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def end_process(process: asyncio.subprocess.Process) -> int:
    """Kill a process, which may have ended already; its exit code."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    return await process.wait()
