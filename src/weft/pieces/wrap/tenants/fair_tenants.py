"""How fair a tenant is treated: all its jobs' times over those on its part of the cluster.

A tenant's part is by its weight among the tenants that are there, and its jobs share it equally.
"""

from __future__ import annotations

import numpy as np

from weft.core.model.job import Job
from weft.core.plan.view import View
from weft.core.state.table import Bools, Floats, Rows
from weft.frozen import frozen


@frozen
class Tenants:
    """The tenants of a view: the one of each row, and how many jobs and which part each has."""

    of: Rows
    jobs: Floats
    part: Floats

    @property
    def crowd(self) -> Floats:
        """For each row, how many of its kind would share the cluster equally."""
        return np.asarray((self.jobs / self.part)[self.of])


def read_tenants(view: View) -> Tenants:
    """Tenants in order of their first job; a job without a tenant counts for its user."""
    names = [_tenant(job) for job in view.table.jobs]
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    of = np.array([known[name] for name in names], np.intp)
    weight = np.array([view.weights.get(name, 1.0) for name in known])
    jobs = np.bincount(of, minlength=len(known)).astype(float)
    return Tenants(of, jobs, weight / max(float(weight.sum()), 1e-9))


def tenant_fairness(tenants: Tenants, times: Floats, alone: Floats) -> Floats:
    """Each row's tenant's: what its jobs take together, over what they would take alone."""
    total = np.bincount(tenants.of, times, len(tenants.jobs))
    due = np.bincount(tenants.of, alone, len(tenants.jobs))
    return np.asarray((total / np.maximum(due, 1e-9))[tenants.of])


def tenant_slack(tenants: Tenants, times: Floats, alone: Floats, mark: float) -> Floats:
    """For each row, how long all jobs of its tenant may wait before the tenant is at `mark`.

    Infinite for a tenant that is there already: it is served as soon as anything changes.
    """
    total = np.bincount(tenants.of, times, len(tenants.jobs))
    due = np.bincount(tenants.of, alone, len(tenants.jobs))
    slack = (mark * due - total) / np.maximum(tenants.jobs, 1.0)
    return np.asarray(np.where(slack > 0.0, slack, np.inf)[tenants.of])


def within_part(view: View, tenants: Tenants, late: Bools, own: Floats) -> Bools:
    """Of the rows of late tenants, those that their part has room for, the worst off first."""
    chosen = np.zeros(len(late), dtype=bool)
    room = tenants.part * view.cluster.gpus
    need = view.table.need
    rows = np.flatnonzero(late)
    for row in rows[np.argsort(-own[rows], kind="stable")].tolist():
        tenant = tenants.of[row]
        if room[tenant] > 0.0:  # the last may be larger than what is left of it
            chosen[row] = True
            room[tenant] -= need[row]
    return chosen


def _tenant(job: Job) -> str:
    return job.tenant or job.user
