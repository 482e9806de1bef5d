"""Shortest remaining service first: remaining time times GPUs.

Paper       Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI
            2019, section 3, as the clairvoyant bound of its two-dimensional priorities.
Objective   mean completion time of gangs of different size.
Needs       an estimate of each job's remaining time.
Controls    who runs. Sizes and places are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  remaining time is the configured predictor's, not the trace's truth; a gang that
            does not fit is passed over and smaller jobs behind it may start.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.about import About, Needs
from weft.core.plan import Plan
from weft.core.view import View
from weft.pieces.pack import pack


@dataclass(frozen=True, slots=True)
class Srsf:
    """Run the jobs that need the fewest more GPU-seconds."""

    about = About(
        "srsf", "Gu et al. 2019", needs=Needs.REMAINING, starves="a stream of smaller jobs"
    )

    def decide(self, view: View) -> Plan:
        """Rank by estimated remaining GPU-seconds, then pack."""
        if not view.waiting().any():
            return Plan()
        return pack(view, view.ranked(view.remaining() * view.table.need))
