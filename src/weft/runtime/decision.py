"""When to ask the policy, and what if it fails.

News that comes faster than decisions can be made is decided together: after a decision there is a
pause in proportion to what it took. A cheap policy on a quiet cluster decides at every event; an
expensive one under load takes a bounded part of the process, and who submits is answered meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from weft.core.actions import Action, Start, Stop
from weft.core.events import Event, Woken
from weft.core.scheduler import Scheduler
from weft.core.state import State
from weft.runtime.clock import Clock

log = logging.getLogger(__name__)

PAUSE = 3.0  # times what a decision took: at most a quarter of the time is spent deciding
LONGEST_S = 1.0
FAILED_S = 60.0  # until a policy that failed is asked again, if nothing happens before


class Decisions:
    """Decisions at their pace; `trouble` says why there is none, empty while all is well."""

    def __init__(self, clock: Clock) -> None:
        self.trouble = ""
        self._clock = clock
        self._not_before = float("-inf")

    def make(
        self, scheduler: Scheduler, policy: str, now: float, noted: Sequence[tuple[float, Event]]
    ) -> list[Action]:
        """What `policy` wishes after what was `noted`; nothing while it pauses, or if it fails."""
        asked = any(isinstance(event, Woken) for _, event in noted)
        if self._not_before > now and not asked and scheduler.policy.about.every is None:
            scheduler.put_off(self._not_before)
            return []
        began, known = time.perf_counter(), len(noted)
        try:
            actions = scheduler.decide(now)
        except Exception as error:
            if len(noted) != known:
                raise  # not while deciding: the state cannot be trusted, the log can
            # A policy's bug must not end the service: nothing changes, and a person is told.
            log.exception("decision=%d policy=%s failed", scheduler.state.decisions, policy)
            self.trouble = f"policy {policy!r} failed: {error}"
            scheduler.put_off(now + FAILED_S * self._clock.speed)
            return []
        self.trouble = ""
        took_s = time.perf_counter() - began
        self._not_before = self._clock.now + min(PAUSE * took_s, LONGEST_S) * self._clock.speed
        log.info("%s", line_of(scheduler.state, policy, actions, took_s))
        return actions


def line_of(state: State, policy: str, actions: Sequence[Action], took_s: float) -> str:
    """A decision in one line of the service's own log."""
    started = sum(isinstance(action, Start) for action in actions)
    stopped = sum(isinstance(action, Stop) for action in actions)
    return (
        f"decision={state.decisions} policy={policy} active={len(state.table)} "
        f"started={started} stopped={stopped} took_ms={took_s * 1e3:.1f}"
    )
