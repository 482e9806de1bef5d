"""Least attained service first.

Paper       Nuyens and Wierman, "The foreground-background queue: a survey", Performance
            Evaluation 65, 2008; in two dimensions (GPU-seconds) Gu et al., "Tiresias", NSDI
            2019.
Objective   mean completion time without knowing how long jobs take: young jobs go first.
Needs       nothing.
Controls    which jobs run, and with `place` where. Sizes are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  continuous priorities are reviewed every `quantum` seconds while jobs wait, since
            equal jobs would otherwise be switched without end. With `thresholds` priorities
            are discretised into queues as in Tiresias, and no quantum is needed.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar, Literal

from weft.core.model.job import Job
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.frozen import frozen
from weft.pieces.admit.starting import Preempt
from weft.pieces.order.attained import AttainedService
from weft.pieces.parts import run_order
from weft.policies.baseline import add_place, find_place, start_at_place

PREEMPT = Preempt()
WHERE = classify(Objective.COMPLETION_TIME, NeededKnowledge.NOTHING, Preemption.STOPS)


@frozen
class Las:
    """Run the jobs that have received least so far, in seconds or in GPU-seconds.

    `by` is `gpu-time` or `time`; `thresholds` joined by `/` make queues; inside a queue running
    jobs come first (`rule=sticky`) or jobs in order of their first start (`rule=start`). `place`
    chooses the devices: `weft list part` shows all places.
    """

    by: Literal["gpu-time", "time"] = "gpu-time"
    thresholds: tuple[float, ...] = ()
    rule: Literal["sticky", "start"] = "sticky"
    quantum: float = 360.0
    place: str = "packed"

    rests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        find_place("las", self.place)
        self._order()

    @property
    def about(self) -> About:
        """A place may need to know more."""
        return _about(self.place)

    def fast_start(self, job: Job, free: Capacity, now: float) -> Plan | None:
        """A lone job that fits starts; without queues all are reviewed after a quantum."""
        plan = start_at_place(find_place("las", self.place), job, free)
        return plan if self.thresholds else plan and Plan(plan.changes, wake_at=now + self.quantum)

    def decide(self, view: View) -> Plan:
        """Rank by attained service, whole or by queue, then pack."""
        return run_order(view, self._order(), PREEMPT, find_place("las", self.place).placer(view))

    def _order(self) -> AttainedService:
        return _order(self.by, self.thresholds, self.rule, self.quantum)


_order = cache(AttainedService)


@cache
def _about(place: str) -> About:
    about = About("las", "Nuyens and Wierman 2008; Gu et al. 2019", taxonomy=WHERE)
    return add_place(about, place)
