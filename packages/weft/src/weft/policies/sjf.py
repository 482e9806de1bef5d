"""Shortest job first, without preemption.

Paper       Smith, "Various optimizers for single-stage production", Naval Research Logistics
            Quarterly 3, 1956; among GPU schedulers the usual non-preemptive baseline.
Objective   mean completion time among schedules that never stop a job.
Needs       an estimate of each job's remaining time.
Controls    which jobs run, and with `place` where. Sizes are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  length is the configured predictor's, not the trace's truth; a gang that does not
            fit is skipped and longer jobs behind it may start.
"""

from __future__ import annotations

from typing import ClassVar

from weft.core.plan.taxonomy import Preemption
from weft.frozen import frozen
from weft.pieces.admit.starting import Backfill
from weft.pieces.order.keys import JobLength
from weft.policies.baseline import Baseline, short_first


@frozen
class Sjf(Baseline):
    """Start the shortest waiting jobs; stop none.

    `place` chooses the devices: `weft list part` shows all places.
    """

    packed: ClassVar = short_first("sjf", "Smith 1956", "shorter", Preemption.NEVER)
    order: ClassVar = JobLength()
    admit: ClassVar = Backfill()
