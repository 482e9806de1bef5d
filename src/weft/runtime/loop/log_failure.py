"""When the log cannot be written: what was not written down has not happened.

The scheduler has taken in events that the log does not have. So every caller is
refused, and the scheduler is read from the log again; what engines told is kept and tried later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from weft.core.errors import EngineError, StoreError, Superseded, UnreadableEvent, WeftError
from weft.core.events.event import Event
from weft.core.protocols import Store
from weft.core.scheduler import Scheduler
from weft.runtime.deciding.live_policy import live_policy
from weft.runtime.loop.messages import find_blamed
from weft.runtime.recovery.recover import Recovered, recover

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class Unwritten(EngineError):  # noqa: N818 - as the others
    """The log could not be written; nothing of what was asked is done."""

    @classmethod
    def because(cls, error: WeftError) -> Unwritten:
        """The error that a submitter gets."""
        return cls(
            f"the scheduler cannot write its log, so it accepts no requests: {error.what}",
            hint="free space in the service's --state folder, then ask again",
        )


async def append(store: Store, noted: Sequence[tuple[float, Event]]) -> int:
    """Keep the events, all or none; the number of the last. Raises Unwritten."""
    try:
        return await asyncio.to_thread(store.append, noted)
    except Superseded:
        raise
    except UnreadableEvent as error:
        if find_blamed(noted, error) is not None:
            raise
        raise Unwritten.because(error) from error
    except WeftError as error:
        log.error("%s", error.what)  # noqa: TRY400 - a full disk is no bug of ours
        raise Unwritten.because(error) from error


async def read_again(
    store: Store, make: Callable[[], Scheduler], closing: Callable[[], bool]
) -> Recovered:
    """All that the log says, with the policy that decided last; it starts without memory.

    Reading tidies up beside the log, so on a full disk it is tried until that is over.
    """
    while True:
        try:
            known = await asyncio.to_thread(recover, store, make)
            break
        except StoreError as error:
            if closing() or isinstance(error, Superseded):
                raise
            log.error("the log is read again later: %s", error.what)  # noqa: TRY400
            await asyncio.sleep(AGAIN_S)
    known.scheduler.use(live_policy(known.policy))
    return known
