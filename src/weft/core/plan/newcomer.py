"""A lone newcomer that fits beside all running jobs: a decision without a view."""

from __future__ import annotations

from weft.core.plan.about import About
from weft.core.plan.plan import NOTHING, Plan
from weft.core.plan.policy import Welcome
from weft.core.plan.rules import check_allocation
from weft.core.state.state import State


def welcome_newcomer(
    state: State, now: float, welcome: Welcome | None, about: About
) -> Plan | None:
    """What a policy that rests decides about at most one waiting job; None where it is asked."""
    table, free = state.table, state.free
    waiting = table.waiting
    if not waiting:
        return NOTHING
    if welcome is None or waiting > 1 or len(state.cluster.kinds) > 1:
        return None
    if table.conditional or table.suspended or state.asleep:
        return None
    job = table.jobs[table.first_waiting()]
    if job.demand.gpus * job.demand.share > free.room():
        return None
    plan = welcome(job, free, now)
    if plan is not None and (on := plan.changes[job.id]) is not None:
        check_allocation(job, on, state.cluster, about, state.decisions)
    return plan
