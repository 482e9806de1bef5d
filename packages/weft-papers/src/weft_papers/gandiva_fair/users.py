"""Owners of jobs, and the GPUs that each is entitled to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.core.model.job import Job
from weft.core.plan.view import View
from weft.formulas.fairness.shares import share_fairly, weigh_owners


def demands_of(jobs: Sequence[Job]) -> dict[str, float]:
    """GPUs that each user's jobs ask for together, users in order of their first job."""
    wanted: dict[str, float] = {}
    for job in jobs:
        user = job.owner
        wanted[user] = wanted.get(user, 0.0) + job.demand.gpus
    return wanted


def entitle(
    room: float, wanted: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """GPUs each user is entitled to; a user without a weight has 1."""
    users = list(wanted)
    weight = np.array([weights.get(user, 1.0) for user in users])
    given = share_fairly(room, weight, np.array([wanted[user] for user in users]))
    return dict(zip(users, given.tolist(), strict=True))


def weights_in(view: View, own: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of the jobs' owners: the policy's own first, else those of the view."""
    pairs = ((job.owner, job.tenant) for job in view.table.jobs)
    return weigh_owners(pairs, {**view.weights, **own})
