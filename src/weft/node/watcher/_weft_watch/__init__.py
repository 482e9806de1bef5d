"""Counts the steps of a training that knows nothing of Weft, and tells the attempt's agent."""

from __future__ import annotations

import os

from . import bars, counting, frameworks, imports

HOOKS = {**frameworks.HOOKS, **bars.HOOKS}


def begin() -> None:
    """Watch this process, if an agent asked for it."""
    counting.guarded(_begin)()


def _begin() -> None:
    """As modules are imported, or are there already."""
    wanted = ("WEFT_WATCH", "WEFT_AGENT", "WEFT_JOB")
    if all(os.environ.get(name) for name in wanted) and counting.COUNTER is None:
        counting.begin()
        imports.call_after(HOOKS)
