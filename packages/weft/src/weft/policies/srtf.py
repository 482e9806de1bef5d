"""Shortest remaining time first.

Paper       Schrage, "A proof of the optimality of the shortest remaining processing time
            discipline", Operations Research 16(3), 1968.
Objective   mean completion time; optimal on one machine, a strong baseline on many.
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
from weft.pieces.order.keys import RemainingTime
from weft.policies.baseline import Baseline, short_first


@frozen
class Srtf(Baseline):
    """Run the jobs that are closest to their end.

    `place` chooses the devices: `weft list part` shows all places.
    """

    packed: ClassVar = short_first("srtf", "Schrage 1968", "shorter", Preemption.STOPS)
    order: ClassVar = RemainingTime()
    admit: ClassVar = Preempt()
    rests: ClassVar[bool] = True
