"""What drawn jobs of several tests have in common."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.core.model.job import Demand, Job, JobId, Or, Tier
from weft.core.model.launch import Launch

LEVELS = {"normal": 0.0, "guaranteed": 1.0, "spot": -0.5, "opportunistic": -1.0}


class Work(NamedTuple):
    """A job's level, size and time, before a test makes a job of them."""

    priority: float
    length: float
    demand: Demand
    due: float | None

    def draw_rest(self, rng: np.random.Generator, name: str) -> Job:
        """The job, with a tenant, and what may be done with it."""
        low = self.priority < 0.0
        elastic = self.demand.max > self.demand.min
        strict = Or.DECLINE, Or.WARN
        return Job(
            JobId(name),
            demand=self.demand,
            tenant=str(rng.choice(["red", "blue"])),
            priority=self.priority,
            tier=Tier.OPPORTUNISTIC if low else Tier.GUARANTEED,
            preemptible=bool(low or elastic or rng.random() < 0.7),
            hints={"duration_s": self.length},
            deadline=self.due,
            deadline_or=Or.UNSAID if self.due is None else strict[rng.random() >= 0.8],
            launch=Launch(("true",)),
        )


def draw_work(rng: np.random.Generator, now: float, elastic: float) -> Work:
    """Work that arrives at `now` and may change its size with the chance `elastic`."""
    priority = LEVELS[str(rng.choice([*LEVELS], p=[0.5, 0.15, 0.2, 0.15]))]
    length = float(rng.choice([120.0, 900.0, 2400.0, 7200.0]))
    gpus = int(rng.choice([1, 1, 2, 2, 4]))
    demand = Demand(gpus, 1, 2 * gpus) if rng.random() < elastic else Demand(gpus)
    endless = priority < 0.0 or rng.random() < 0.3
    due = None if endless else now + length * float(rng.uniform(0.8, 4.0))
    return Work(priority, length, demand, due)
