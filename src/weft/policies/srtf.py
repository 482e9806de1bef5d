"""Shortest remaining time first.

Paper       Schrage, "A proof of the optimality of the shortest remaining processing time
            discipline", Operations Research 16(3), 1968.
Objective   mean completion time; optimal on one machine, a strong baseline on many.
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
class Srtf:
    """Run the jobs that are closest to their end."""

    about = About("srtf", "Schrage 1968", needs=Needs.REMAINING, starves="a stream of shorter jobs")

    def decide(self, view: View) -> Plan:
        """Rank by estimated remaining time, then pack."""
        if not view.waiting().any():
            return Plan()
        return pack(view, view.ranked(view.remaining()))
