"""Plans without stops of jobs in whose place a later one that is just like them starts."""

from __future__ import annotations

from dataclasses import replace

from weft.core.model.job import Job
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.pieces.wrap.sub_cluster import carry_out


def without_swaps(view: View, plan: Plan) -> Plan:
    """The plan without such stops and starts, if it can be carried out without them.

    Nothing is won by a swap, and a restart is lost.
    """
    changes = dict(plan.changes)
    rows = {job: view.table.row(job) for job in changes}
    starts = [job for job, to in changes.items() if to and view.holds(job) is None]
    for job in [job for job, to in changes.items() if to is None]:
        like = [name for name in starts if rows[name] > rows[job]]
        like = [name for name in like if _are_alike(view.job(rows[name]), view.job(rows[job]))]
        if like:
            starts.remove(like[0])
            del changes[job], changes[like[0]]
    if len(changes) == len(plan.changes):
        return plan
    kept = {job: why for job, why in plan.reasons.items() if job in changes or job not in rows}
    mark = view.free.mark()
    fits = carry_out(view, Plan(changes))
    view.free.rollback(mark)
    return replace(plan, changes=changes, reasons=kept) if fits else plan


def _are_alike(job: Job, other: Job) -> bool:
    """Return true if jobs ask for the same, for as long, with the same right to it."""
    asks, others = ((j.demand, j.hints, j.tenant, j.priority, j.tier) for j in (job, other))
    return asks == others and job.deadline == other.deadline
