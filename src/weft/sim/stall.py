"""What is said of a simulation in which nothing will happen any more."""

from __future__ import annotations

from weft.core.errors import PlanError
from weft.core.scheduler import Scheduler


class Stalled(PlanError):  # noqa: N818 - as the others
    """Jobs wait, nothing runs and no event is to come."""


def stall_error(scheduler: Scheduler) -> Stalled:
    """Which policy leaves which jobs waiting."""
    waiting = [job.id for job in scheduler.state.table.jobs[:3]]
    return Stalled(
        f"policy {scheduler.policy.about.name!r} leaves {len(scheduler.state.table)} jobs waiting "
        f"forever, first {', '.join(waiting)}: nothing runs and no event is to come",
        hint="the policy must start a job that fits, or ask to be woken",
    )
