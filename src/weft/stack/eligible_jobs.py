"""Which jobs a policy is asked about: those that only a lack of devices keeps from starting."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from weft.core.model.job import Job, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Welcome, may_rest, welcome_of
from weft.core.plan.view import View
from weft.core.state.table import Bools, Table
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper


@dataclass(frozen=True, slots=True)
class EligibleJobs(Wrapper):
    """Hide from `inner` the jobs that wait for something other than devices."""

    @property
    def rests(self) -> bool:
        """Nobody waits for anything where all hold devices."""
        return may_rest(self.inner)

    @property
    def welcome(self) -> Welcome | None:
        """As the policy does it."""
        return welcome_of(self.inner)

    def decide(self, view: View) -> Plan:
        """What the policy decides about jobs that may start; the others wait unseen."""
        table = view.table
        if not table.conditional and not table.suspended:
            return self.inner.decide(view)
        kept_back = find_kept_back(table)
        if table.suspended and kept_back.all():
            return Plan(memory=view.memory)
        return ask(self.inner, view.without(kept_back) if kept_back.any() else view)


def find_kept_back(table: Table) -> Bools:
    """Rows of jobs that no policy is asked about.

    They wait for something else than devices: for others, their turn in an app, or a person.
    """
    running = Counter(
        app_of(job)
        for job, on in zip(table.jobs, table.allocations, strict=True)
        if on is not None and job.max_parallel
    )
    kept_back = np.zeros(len(table), dtype=bool)
    for row, job in enumerate(table.jobs):
        if job.id in table.suspended:
            kept_back[row] = True
            continue
        if table.allocations[row] is not None or not job.conditional:
            continue
        if awaited_by(job, table):
            kept_back[row] = True
        elif job.max_parallel:
            kept_back[row] = running[app_of(job)] >= job.max_parallel
            running[app_of(job)] += not kept_back[row]
    return kept_back


def app_of(job: Job) -> tuple[str, str]:
    """What a job is a part of; tenants may use the same names."""
    return job.tenant, job.app


def awaited_by(job: Job, table: Table) -> tuple[JobId, ...]:
    """Those of the jobs it waits for that have not ended."""
    return tuple(other for other in job.after.jobs if other in table)
