"""Whose jobs they are, and how much each user is entitled to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model import Job
from weft.core.table import Floats


def owner_of(job: Job) -> str:
    """Whose job it is: its user's, or its tenant's where no user is named."""
    return job.user or job.tenant


def check_weights(policy: str, weights: Mapping[str, float]) -> None:
    """Raise InvalidConfig unless every weight is above 0."""
    for name, weight in weights.items():
        if not 0.0 < weight < np.inf:
            raise InvalidConfig(
                f"{policy}: weights gives {name!r} a weight of {weight:g}",
                hint="a weight is above 0; users that are not named have 1",
            )


def share_fairly(room: float, weights: Floats, demands: Floats) -> Floats:
    """Weighted max-min: nobody gets more than it can use; what is left goes to the others."""
    given = np.zeros(len(weights))
    open_ = demands > 0.0
    while open_.any() and room > 0.0:
        level = room / weights[open_].sum()
        full = open_ & (demands <= level * weights + 1e-12)
        if not full.any():
            given[open_] = level * weights[open_]
            break
        given[full] = demands[full]
        room -= float(demands[full].sum())
        open_ &= ~full
    return given


def demands_of(jobs: Sequence[Job]) -> dict[str, float]:
    """GPUs that each user's jobs ask for together, users in order of their first job."""
    wanted: dict[str, float] = {}
    for job in jobs:
        user = owner_of(job)
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
