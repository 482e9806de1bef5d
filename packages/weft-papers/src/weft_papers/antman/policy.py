"""AntMan: guaranteed jobs run as if alone, opportunistic ones use what they leave.

Paper       Xiao et al., "AntMan: Dynamic Scaling on GPU Clusters for Deep Learning", OSDI 2020.
Objective   use what guaranteed jobs leave of their devices, without slowing them.
Needs       what a job uses of a device, and the pace that guaranteed jobs measure. An unmodified
            job is guaranteed, and nothing joins it until its use of the GPU was measured; submitted
            as opportunistic it joins such a job, or has an idle GPU.
Controls    which jobs run and where, the tier, the share of opportunistic jobs and their memory.
Cost        O(n + devices) for n active jobs.
Deviations  the paper's local coordinator is not published: shares rise by 5 points an epoch while
            guaranteed jobs are within 2 % of their pace alone, halve beyond 5 %, and then stay
            below what was too much until the jobs above change. Gangs of guaranteed jobs start in
            order of submission and never hold a part: all free devices of a kind wait for the first
            gang that can use it, and opportunistic jobs may use them meanwhile. At most one
            opportunistic job per device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Tier
from weft.core.plan.about import About, Controls, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import DeviceSharing, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.share.memory_order import order_memory
from weft_papers.antman.fair import Round, StartTerms

ABOUT = About(
    "antman",
    "Xiao et al. 2020",
    controls=Controls.SHARE | Controls.TIER,
    starves="opportunistic jobs get only the GPUs that are left",
    idles="free devices gather for the first gang that can use them",
    ties=Ties.NONE,
    taxonomy=classify(
        Objective.UTILIZATION | Objective.GUARANTEES,
        NeededKnowledge.PROFILES,
        Preemption.NEVER,
        DeviceSharing.OPPORTUNISTIC,
    ),
)


@frozen
class Antman:
    """Guaranteed jobs first, opportunistic ones beside them on the least used devices.

    `quota` gives GPUs to tenants (`vision=16/nlp=8`): jobs beyond its quota run as opportunistic.
    `promote` moves such a job to devices of its own when its turn comes. Jobs of at most
    `loose_priority` are opportunistic as well, whatever their tier. `epoch` is how often shares are
    adjusted, in seconds; a device that is `busy` or has `used_gb` of its memory taken gets no
    opportunistic job; `margin_gb` stays between the two.
    """

    quota: Mapping[str, float] = field(default_factory=dict)
    promote: bool = False
    loose_priority: float | None = None
    epoch: float = 5.0
    busy: float = 0.8
    used_gb: float = 16.0
    margin_gb: float = 0.5

    about = ABOUT

    def __post_init__(self) -> None:
        if self.epoch <= 0:
            raise InvalidConfig(f"antman: epoch={self.epoch:g} must be above 0 seconds")
        for tenant, gpus in self.quota.items():
            if not gpus >= 0:
                raise InvalidConfig(
                    f"antman: quota of {tenant!r} is {gpus:g}, expected a number of GPUs",
                    hint="for example antman:quota=vision=16/nlp=8",
                )

    def decide(self, view: View) -> Plan:
        """Start what may start, then set the shares of those in the gaps."""
        terms = StartTerms(
            self.quota, self.promote, self.epoch, self.busy, self.used_gb, self.margin_gb
        )
        loose = self._loose(view, self.loose_priority)
        plan = Round(view, loose, terms).plan()
        order = order_memory(view, plan.changes, lambda _: loose.astype(float))
        return replace(plan, memory_order=order)

    def _loose(self, view: View, priority: float | None) -> Bools:
        most = -np.inf if priority is None else priority
        jobs = view.table.jobs
        return np.array(
            [
                job.shareable and (job.tier is Tier.OPPORTUNISTIC or job.priority <= most)
                for job in jobs
            ],
            dtype=bool,
        )
