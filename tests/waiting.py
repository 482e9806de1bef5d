"""Wait for what happens in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 120.0  # on a busy machine


def wait_until(true: Callable[[], object], what: str = "", limit_s: float = LIMIT_S) -> None:
    """Until `true` says so; AssertionError after `limit_s`."""
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until, what or "it did not happen in time"
        time.sleep(0.05)
