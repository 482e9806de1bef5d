"""Quasi-shortest service first: the least predicted GPU time first, no job is stopped.

Paper       Hu et al., "Characterization and Prediction of Deep Learning Workloads in
            Large-Scale GPU Datacenters" (Helios), SC 2021, section 4.2.
Objective   mean completion time without preemption and without asking for lengths.
Needs       an estimate of each job's length; the published one is the predictor `qssf`.
Controls    which jobs run, and with `place` where. Sizes are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  one queue, not one per virtual cluster (`hived` makes those). A priority is the
            predictor's of that moment; `qssf` keeps its first, as published, unless `refresh` is
            set. The authors sort jobs that arrive into an empty queue by GPUs.
"""

from __future__ import annotations

from typing import ClassVar

from weft.core.plan.taxonomy import NeededKnowledge, Preemption
from weft.frozen import frozen
from weft.pieces.admit.starting import BEHIND, InTurn
from weft.pieces.order.keys import RemainingService
from weft.policies.baseline import Baseline, short_first


@frozen
class Qssf(Baseline):
    """Start waiting jobs by least predicted GPU time; one that does not fit holds up the rest.

    `place` chooses the devices: `weft list part` shows all places.
    """

    packed: ClassVar = short_first(
        "qssf", "Hu et al. 2021", "smaller", Preemption.NEVER, NeededKnowledge.PAST_JOBS, BEHIND
    )
    order: ClassVar = RemainingService()
    admit: ClassVar = InTurn()
