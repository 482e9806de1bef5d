"""From an action to a request of an engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import assert_never

from weft.core.actions import Adjust, Reject, Start, Stop
from weft.core.model import JobId
from weft.core.ports import Engine

log = logging.getLogger(__name__)

Request = Start | Stop | Adjust | Reject


async def act(engine: Engine, action: Request, grace_s: Callable[[JobId], float]) -> None:
    """Ask the engine for it; raises EngineError if it cannot be asked now."""
    match action:
        case Start(job, on, attempt):
            await engine.start(job, on, attempt)
        case Stop(job_id, attempt):
            await engine.stop(job_id, attempt, grace_s(job_id))
        case Adjust(job_id, attempt, to):
            await engine.adjust(job_id, attempt, to)
        case Reject(job_id, reason):
            log.warning("job=%s rejected: %s", job_id, reason)
        case _:
            assert_never(action)
