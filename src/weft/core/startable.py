"""Which jobs a policy is asked about: those that nothing but devices keeps from starting."""

from __future__ import annotations

import numpy as np

from weft.core.model import Job, JobId
from weft.core.plan import Plan
from weft.core.policy import Policy
from weft.core.table import Bools, Table
from weft.core.view import View


def decide_startable(policy: Policy, view: View) -> Plan:
    """What the policy decides about jobs that may start; the others wait unseen."""
    if not view.table.conditional:
        return policy.decide(view)
    return policy.decide(view.without(find_kept_back(view.table)))


def find_kept_back(table: Table) -> Bools:
    """Rows of jobs that wait for something else than devices."""
    return np.array([bool(awaited_by(job, table)) for job in table.jobs], dtype=bool)


def awaited_by(job: Job, table: Table) -> tuple[JobId, ...]:
    """Those of the jobs it waits for that have not ended."""
    return tuple(other for other in job.after.jobs if other in table)
