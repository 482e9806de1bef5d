"""Garbage collection while a simulation runs: rarely, since it leaves next to no cycles behind.

At Python's own pace it walks all jobs and runs again and again: 5 % of a long simulation.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

RARELY = 100_000  # objects made and not freed before the youngest are looked through

_lock = Lock()
_running = 0
_before = gc.get_threshold()


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Until the last of those that overlap leaves; then as it was before the first."""
    global _before, _running
    with _lock:
        if _running == 0:
            _before = gc.get_threshold()
            gc.set_threshold(max(RARELY, _before[0]), *_before[1:])
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if _running == 0:
                gc.set_threshold(*_before)
