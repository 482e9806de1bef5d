"""First in, first out.

Paper       none; the default of most queueing systems and the usual baseline.
Objective   predictability: jobs start in the order they came.
Needs       nothing.
Controls    who runs. Sizes and places are left to the defaults.
Cost        O(n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  none. Strict by default: a job that does not fit holds up everyone behind it. With
            `backfill` every waiting job that fits may start (fit-first, without reservations),
            so large jobs can wait for long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.about import About
from weft.core.plan import Plan
from weft.core.view import View
from weft.pieces.pack import backfill, in_turn


@dataclass(frozen=True, slots=True)
class Fifo:
    """Start jobs in the order they came; stop nobody."""

    backfill: bool = False

    @property
    def about(self) -> About:
        """Strict FIFO starves nobody; with backfill large jobs may be overtaken for ever."""
        return About("fifo", "baseline", starves="overtaking" if self.backfill else "")

    def decide(self, view: View) -> Plan:
        """Rows are in order of submission already."""
        order = np.arange(len(view.table))
        return backfill(view, order) if self.backfill else in_turn(view, order)
