"""Work that goes on beside the loop until it is told to end."""

from __future__ import annotations

import asyncio


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait until it has ended, whatever it ended with; nothing for none."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
