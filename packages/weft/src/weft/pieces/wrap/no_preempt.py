"""Jobs that may not be stopped are not, whatever the policy.

A policy that minds `Job.stoppable` itself is never overruled: only if its plan would stop or
move such a job is it asked again, without those jobs in its sight.
"""

from __future__ import annotations

from weft.core.model.job import JobId
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Objective, declare
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.sub_cluster import decide_among
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper


@frozen
class NoPreempt(Wrapper):
    """Let jobs that cannot be preempted run to their end where they are."""

    adds = declare(Objective.GUARANTEES)

    def decide(self, view: View) -> Plan:
        """The inner policy's decision; a second one without the firm jobs if it moves any."""
        firm = view.running() & ~view.preemptible()
        if not firm.any():
            return ask(self.inner, view)
        mark = view.free.mark()
        plan = ask(self.inner, view)
        view.free.rollback(mark)
        if not any(_moves(view, plan, firm, job) for job in plan.changes):
            return plan
        return decide_among(self.inner, view.without(firm))


def _moves(view: View, plan: Plan, firm: Bools, job: JobId) -> bool:
    row = view.table.row(job)
    was, to = view.allocation(row), plan.changes[job]
    return bool(firm[row]) and (was is None or to is None or not was.stays(to))
