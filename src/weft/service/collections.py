"""Garbage collections that nobody waits for."""

from __future__ import annotations

import gc
import time
from typing import Any

LONG_S = 0.02


def keep_collections_short() -> None:
    """What is there now stays: looking through it again took 90 ms each time.

    What is there after a long collection later, as of thousands of jobs, is not looked through
    again either. It goes when nothing refers to it; only circles among it would stay.
    """
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_Collections().note)


class _Collections:
    """When the one that is under way began, in CPU seconds of its thread."""

    def __init__(self) -> None:
        self._began = 0.0

    def note(self, phase: str, _: dict[str, Any]) -> None:
        """Called by Python before and after each."""
        if phase == "start":
            self._began = time.thread_time()
        elif time.thread_time() - self._began > LONG_S:
            gc.freeze()
