"""A failed job waits before it is tried again: a wrapper around any policy.

It reads only the view, so a log replays to the same decisions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.core.model.job import Job
from weft.core.model.launch import Launch
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Column, Floats
from weft.frozen import frozen
from weft.stack.wrapper import Wrapper

LONGEST_S = 300.0
_LIKE_OTHERS = Launch(())


@frozen
class Backoff(Wrapper):
    """Hide jobs from `inner` until their pause after a failure is over."""

    def decide(self, view: View) -> Plan:
        """The inner policy's decision for all other jobs; wakes when a pause ends."""
        ready = ready_at(view)
        hidden = view.waiting() & (ready > view.now)
        if not hidden.any():
            return self.inner.decide(view)
        plan = self.inner.decide(view.without(hidden))
        soonest = float(ready[hidden].min())
        wake = soonest if plan.wake_at is None else min(plan.wake_at, soonest)
        return replace(plan, wake_at=wake)


def ready_at(view: View) -> Floats:
    """When each row may be tried again; in the past for those that never failed."""
    retries, failed = view.table.column(Column.RETRIES), view.table.column(Column.FAILED)
    ready = np.zeros(len(view.table))
    for row in map(int, np.flatnonzero(retries)):
        ready[row] = failed[row] + pause_s(view.job(row), retries[row])
    return ready


def pause_s(job: Job, retries: float) -> float:
    """How long a job waits after its failure number `retries`."""
    launch = job.launch or _LIKE_OTHERS
    doubled = 2.0 ** int(min(retries - 1, 30))
    return float(min(launch.backoff_s * doubled, LONGEST_S))
