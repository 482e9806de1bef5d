"""A second look at waiting jobs, soon after a decision took something away.

What a job leaves may be of use to others, or to the job that left it: policies and rules
that go through jobs one after the other see that only when they are asked again. A policy that
takes something away each time is asked less and less often.
"""

from __future__ import annotations

from weft.core.plan.early_rounds import could_start
from weft.core.plan.plan import Plan
from weft.core.state.state import State

AT_ONCE_S, FIRST_S, LONGEST_S = 1.0, 15.0, 960.0  # at once where a job fits into what is free


class SecondLook:
    """Says when to decide again though nothing has happened."""

    def __init__(self) -> None:
        self._pause_s = FIRST_S
        self._at = float("inf")

    def after(self, now: float, plan: Plan, state: State) -> float | None:
        """When to look again after a decision that `state` has taken in; None if not at all."""
        looked, self._at = now >= self._at, float("inf")
        waits = len(state.table) - len(state.table.suspended) > state.table.held.astype(bool).sum()
        first = AT_ONCE_S if waits and could_start(state.table, state.free) else FIRST_S
        if not waits or not _takes_away(plan, state):
            self._pause_s = first
            return None
        self._pause_s = min(2.0 * self._pause_s, LONGEST_S) if looked else first
        self._at = now + self._pause_s
        return self._at


def _takes_away(plan: Plan, state: State) -> bool:
    """Whether a job left devices: it was stopped, moved or made smaller."""
    leaves, resizes = state.releasing.is_leaving, state.live.under_way
    return any(to is None or leaves(job) or job in resizes for job, to in plan.changes.items())
