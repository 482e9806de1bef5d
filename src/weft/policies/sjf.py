"""Shortest job first, without preemption.

Paper       Smith, "Various optimizers for single-stage production", Naval Research Logistics
            Quarterly 3, 1956; among GPU schedulers the usual non-preemptive baseline.
Objective   mean completion time among schedules that never stop a job.
Needs       an estimate of each job's remaining time.
Controls    who runs. Sizes and places are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  length is the configured predictor's, not the trace's truth; a gang that does not
            fit is passed over and longer jobs behind it may start.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.about import About, Needs
from weft.core.plan import Plan
from weft.core.view import View
from weft.pieces.pack import backfill


@dataclass(frozen=True, slots=True)
class Sjf:
    """Start the shortest waiting jobs; stop nobody."""

    about = About("sjf", "Smith 1956", needs=Needs.REMAINING, starves="a stream of shorter jobs")

    def decide(self, view: View) -> Plan:
        """Rank the waiting by estimated length, then start what fits."""
        waiting = view.waiting()
        if not waiting.any():
            return Plan()
        return backfill(view, view.ranked(view.remaining(), among=waiting))
