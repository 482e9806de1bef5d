"""Words for a running job that waits for memory of its GPU."""

from __future__ import annotations

from weft.core.knowledge.measured import MemoryWait
from weft.core.model.job import JobId

SHOWN = 3


def describe_wait(wait: MemoryWait, job: JobId, now: float) -> str:
    """Return the memory it waits for, for how long, and the jobs that hold most of it."""
    others = sorted(((gb, other) for other, gb in wait.held.items() if other != job), reverse=True)
    holders = ", ".join(f"{other} holds {gb:.3g} GB" for gb, other in others[:SHOWN])
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    text = f"waits for {wait.gb:.3g} GB of GPU memory for {max(now - wait.since, 0.0):.0f} s"
    away = "; its own memory is in host memory meanwhile, for the others" if wait.away else ""
    return f"{text}: {holders}{more}{away}" if holders else text + away
