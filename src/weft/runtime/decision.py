"""A decision in one line of the service's own log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from weft.core.actions import Action, Start, Stop
from weft.core.state import State


def line_of(state: State, policy: str, actions: Sequence[Action], began: float) -> str:
    """What was decided; `began` is when, by `time.perf_counter`."""
    started = sum(isinstance(action, Start) for action in actions)
    stopped = sum(isinstance(action, Stop) for action in actions)
    took_ms = (time.perf_counter() - began) * 1e3
    return (
        f"decision={state.decisions} policy={policy} active={len(state.table)} "
        f"started={started} stopped={stopped} took_ms={took_ms:.1f}"
    )
