"""Least attained service first.

Paper       Nuyens and Wierman, "The foreground-background queue: a survey", Performance
            Evaluation 65, 2008; in two dimensions (GPU-seconds) Gu et al., "Tiresias", NSDI
            2019.
Objective   mean completion time without knowing how long jobs take: young jobs go first.
Needs       nothing.
Controls    who runs. Sizes and places are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  continuous priorities are reviewed every `quantum` seconds while jobs wait, since
            equal jobs would otherwise be switched without end. With `thresholds` priorities
            are discretised into queues as in Tiresias, and no quantum is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.core.about import About
from weft.core.errors import InvalidConfig
from weft.core.plan import Plan
from weft.core.view import View
from weft.pieces.order.queues import Queues
from weft.pieces.pack import pack
from weft.pieces.queued import queue_jobs


@dataclass(frozen=True, slots=True)
class Las:
    """Run the jobs that have received least so far, in seconds or in GPU-seconds.

    `by` is `gpu-time` or `time`; `thresholds` joined by `/` make queues; inside a queue running
    jobs come first (`rule=sticky`) or jobs in order of their first start (`rule=start`).
    """

    by: Literal["gpu-time", "time"] = "gpu-time"
    thresholds: tuple[float, ...] = ()
    rule: Literal["sticky", "start"] = "sticky"
    quantum: float = 360.0

    about = About("las", "Nuyens and Wierman 2008; Gu et al. 2019")

    def __post_init__(self) -> None:
        if self.quantum <= 0:
            raise InvalidConfig(f"las: quantum={self.quantum:g} must be above 0 seconds")

    def decide(self, view: View) -> Plan:
        """Rank by attained service, whole or by queue, then pack."""
        if self.thresholds:
            queues = Queues(self.thresholds, self.by == "time", self.rule == "sticky")
            return queue_jobs(view, queues)
        if not view.waiting().any():
            return Plan()
        attained = view.ran() if self.by == "time" else view.service()
        plan = pack(view, view.ranked(attained))
        return Plan(plan.changes, wake_at=view.now + self.quantum)
