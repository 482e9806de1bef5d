"""Tiresias: discretised two-dimensional priorities, and consolidation only where it pays.

Paper       Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI
            2019.
Objective   mean completion time without knowing how long jobs take, with few preemptions.
Needs       the model a job trains, for its skew; with `priority=gittins` also the GPU-seconds
            of finished jobs.
Controls    which jobs run, and whether a gang must be consolidated.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  inside a queue the default keeps running jobs first, as the authors' simulator
            does; `rule=start` is the paper's order by first start. Demotions are noticed at
            the exact instant; the authors' simulator is late for gangs. Unknown models are not
            consolidated. `pack_limit` is given, not learned online.
"""

from __future__ import annotations

from typing import Literal

from weft.core.model.job import Job
from weft.core.plan.about import About, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import (
    NeededKnowledge,
    Objective,
    Preemption,
    TopologyKnowledge,
    classify,
)
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.frozen import frozen
from weft.pieces.admit.starting import Preempt
from weft.pieces.order.attained import QueuedService
from weft.pieces.pack import start_if_fits
from weft.pieces.parts import run_order
from weft.pieces.place.parts import Skewed, by_skew

WHERE = classify(
    Objective.COMPLETION_TIME,
    NeededKnowledge.MODELS,
    Preemption.STOPS,
    TopologyKnowledge.CONSOLIDATED,
)


@frozen
class Tiresias:
    """Young jobs first, by queue; skewed models on as few nodes as possible.

    `thresholds` are GPU-seconds joined by `/`; `knob` promotes a job that has waited that many
    times what it ran (none: never); `pack_limit` is the skew above which a gang must be
    consolidated.
    """

    thresholds: tuple[float, ...] = (3250.0,)
    priority: Literal["las", "gittins"] = "las"
    rule: Literal["sticky", "start"] = "sticky"
    knob: float | None = None
    pack_limit: float = 0.25

    @property
    def about(self) -> About:
        """Gittins also reads the past."""
        return About(
            "tiresias",
            "Gu et al. 2019",
            needs=Needs.MODEL | self._order().about.needs,
            starves=self._order().about.starves,
            idles=Skewed.about.idles,
            taxonomy=WHERE,
        )

    def __post_init__(self) -> None:
        self._order()

    @property
    def rests(self) -> bool:
        """A job that waited too long is promoted also while all jobs run."""
        return self.knob is None

    def fast_start(self, job: Job, free: Capacity, now: float) -> Plan | None:  # noqa: ARG002 - at any time
        """A lone job that fits starts; demotions are worked out when an order matters."""
        return start_if_fits(job, free, by_skew(self.pack_limit))

    def decide(self, view: View) -> Plan:
        """Scan the queues, first fit, each job where its skew lets it be."""
        return run_order(view, self._order(), Preempt(), by_skew(self.pack_limit))

    def _order(self) -> QueuedService:
        return QueuedService(self.thresholds, self.priority, self.rule, self.knob)
