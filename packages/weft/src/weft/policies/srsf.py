"""Shortest remaining service first: remaining time times GPUs.

Paper       Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI
            2019, section 3, as the clairvoyant bound of its two-dimensional priorities.
Objective   mean completion time of gangs of different size.
Needs       an estimate of each job's remaining time.
Controls    which jobs run, and with `place` where. Sizes are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  remaining time is the configured predictor's, not the trace's truth; a gang that
            does not fit is skipped and smaller jobs behind it may start.
"""

from __future__ import annotations

from typing import ClassVar

from weft.core.plan.taxonomy import Preemption
from weft.frozen import frozen
from weft.pieces.admit.starting import Preempt
from weft.pieces.order.keys import RemainingService
from weft.policies.baseline import Baseline, short_first


@frozen
class Srsf(Baseline):
    """Run the jobs that need the fewest more GPU-seconds.

    `place` chooses the devices: `weft list part` shows all places.
    """

    packed: ClassVar = short_first("srsf", "Gu et al. 2019", "smaller", Preemption.STOPS)
    order: ClassVar = RemainingService()
    admit: ClassVar = Preempt()
    rests: ClassVar[bool] = True
