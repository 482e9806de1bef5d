"""First in, first out.

Paper       none; the default of most queueing systems and the usual baseline.
Objective   predictability: jobs start in the order they came.
Needs       nothing.
Controls    which jobs run, and with `place` where. Sizes are left to the defaults.
Cost        O(n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  none. Strict by default: a job that does not fit holds up everyone behind it. With
            `backfill` every waiting job that fits may start (fit-first, without reservations),
            so large jobs can wait for long.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from weft.core.model.job import Job
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.frozen import frozen
from weft.pieces.admit.starting import Backfill, InTurn
from weft.pieces.order.keys import ArrivalOrder
from weft.pieces.parts import run_order
from weft.policies.baseline import add_place, find_place, start_at_place

ARRIVAL, BACKFILL, IN_TURN = ArrivalOrder(), Backfill(), InTurn()
WHERE = classify(Objective.IN_ORDER, NeededKnowledge.NOTHING, Preemption.NEVER)


@frozen
class Fifo:
    """Start jobs in order of arrival; stop none.

    `place` chooses the devices: `weft list part` shows all places.
    """

    backfill: bool = False
    place: str = "packed"

    rests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        find_place("fifo", self.place)

    @property
    def about(self) -> About:
        """Strict FIFO starves no job; with backfill large jobs may be overtaken forever."""
        return _about(self.place, backfill=self.backfill)

    def fast_start(self, job: Job, free: Capacity, now: float) -> Plan | None:  # noqa: ARG002 - at any time
        return start_at_place(find_place("fifo", self.place), job, free)

    def decide(self, view: View) -> Plan:
        """Rows are in order of submission already."""
        admit = BACKFILL if self.backfill else IN_TURN
        return run_order(view, ARRIVAL, admit, find_place("fifo", self.place).placer(view))


@cache
def _about(place: str, *, backfill: bool) -> About:
    starves = Backfill.about.starves if backfill else ""
    idles = "" if backfill else IN_TURN.about.idles
    about = About("fifo", "baseline", starves=starves, taxonomy=WHERE, idles=idles)
    return add_place(about, place, overtaking=backfill)
