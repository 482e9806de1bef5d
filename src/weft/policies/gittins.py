"""Two-dimensional Gittins index: the likeliest to end soon for the service it will take.

Paper       Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI
            2019; Gittins, "Bandit processes and dynamic allocation indices", Journal of the
            Royal Statistical Society B 41(2), 1979.
Objective   mean completion time when only the distribution of service is known.
Needs       GPU-seconds of finished jobs; before there are `min_samples`, a log-normal prior.
Controls    who runs. Sizes and places are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  attained service is rounded down to steps of one, two, four, ... `quantum`s, and the
            index is that of the service up to the next step; it is reviewed when a running
            job climbs one. `optimal=true` takes the supremum over all quanta. The prior has
            the median and spread of the GPU-times published with the authors' simulator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.about import About, Needs
from weft.core.errors import InvalidConfig
from weft.core.plan import Plan
from weft.core.table import Floats
from weft.core.view import View
from weft.pieces.order.gittins import (
    PRIOR_MEDIAN,
    PRIOR_SIGMA,
    best_gittins_index,
    gittins_index,
    past_service,
)
from weft.pieces.pack import pack, running_after


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered: total service of past jobs, after `seen` of them had finished."""

    seen: int
    service: Floats


@dataclass(frozen=True, slots=True)
class Gittins:
    """Run the jobs with the highest index over the service of past jobs."""

    quantum: float = 3250.0
    optimal: bool = False
    min_samples: int = 100
    prior_median: float = PRIOR_MEDIAN
    prior_sigma: float = PRIOR_SIGMA

    about = About(
        "gittins", "Gu et al. 2019", needs=Needs.HISTORY, starves="jobs beyond all past service"
    )

    def __post_init__(self) -> None:
        if self.quantum <= 0:
            raise InvalidConfig(f"gittins: quantum={self.quantum:g} must be above 0 GPU-seconds")

    def decide(self, view: View) -> Plan:
        """Rank by index, highest first, then pack; wake when a running job climbs a step."""
        past = self._past(view)
        if not view.waiting().any():
            return Plan(memory=past)
        served = view.service()
        step = np.floor(np.log2(np.maximum(served / self.quantum, 0.5) + 1e-9)) + 1.0
        low = np.where(step > 0.0, self.quantum * 2.0 ** (step - 1.0), 0.0)
        high = self.quantum * 2.0**step
        if self.optimal:
            index = best_gittins_index(past.service, low)
        else:
            index = gittins_index(past.service, low, high - low)
        plan = pack(view, view.ranked(-index))
        running = running_after(view, plan)
        left = (high - served)[running] / view.table.need[running]
        soonest = float(left.min(initial=np.inf))
        wake = view.now + max(soonest, 1e-6) if np.isfinite(soonest) else None
        return Plan(plan.changes, wake_at=wake, memory=past)

    def _past(self, view: View) -> Past:
        """The distribution, refreshed as jobs finish; it changes slowly, so not every time."""
        seen = len(view.history)
        old = view.memory
        if isinstance(old, Past) and seen < old.seen + self.min_samples:
            return old
        args = self.min_samples, self.prior_median, self.prior_sigma
        return Past(seen, past_service(view.history, *args))
