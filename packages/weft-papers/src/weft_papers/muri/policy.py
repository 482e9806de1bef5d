"""Muri: groups of jobs that use different resources at different moments share GPUs.

Paper       Zhao et al., "Multi-Resource Interleaving for Deep Learning Training",
            SIGCOMM 2022.
Objective   mean completion time, by doing more work on the same devices.
Needs       stage times of an iteration of each job; with `known`, remaining times. An unmodified
            job has its GPU alone until its steps were measured, and is then grouped by them.
Controls    which jobs run, which share devices, and in which order their stages take turns.
Cost        a maximum-weight matching over types of groups per GPU count and round: it does not
            grow with the number of jobs of a type; O(n log n) for n active jobs besides.
Deviations  lock step is one discipline of two: `work-conserving` lets every member advance at its
            own rate, matches by the sum of speeds and merges the best pairs first. A group stays on
            the devices of one of its members where it can. A group must fit in device memory. Jobs
            without stage times are grouped by the speeds they are predicted to reach together.
"""

from __future__ import annotations

from typing import Literal

from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import (
    DeviceSharing,
    NeededKnowledge,
    Objective,
    Preemption,
    TopologyKnowledge,
    classify,
)
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.admit.starting import Preempt
from weft.pieces.place.gangs import consolidate
from weft.pieces.place.parts import WAITS
from weft_papers.muri.order import TwoDimensional
from weft_papers.muri.share import MuriGroups

WHERE = classify(
    Objective.COMPLETION_TIME,
    NeededKnowledge.DURATIONS | NeededKnowledge.PROFILES,
    Preemption.STOPS,
    DeviceSharing.INTERLEAVED,
    TopologyKnowledge.CONSOLIDATED,
)


@frozen
class Muri:
    """Interleave jobs with complementary needs on the same GPUs.

    `known` ranks by remaining service (Muri-S), else by attained service (Muri-L). `size` is the
    most jobs on a device. `ordering` is the order of stages in a group's period: the best one, or
    the worst, to measure what the order is worth. `matching` false groups neighbours in rank.
    """

    known: bool = True
    discipline: Literal["lockstep", "work-conserving"] = "lockstep"
    size: int = 4
    ordering: Literal["best", "worst"] = "best"
    matching: bool = True

    def __post_init__(self) -> None:
        self._groups()

    @property
    def about(self) -> About:
        """Muri-S asks for remaining times; Muri-L does not."""
        return About(
            "muri",
            "Zhao et al. 2022",
            needs=Needs.REMAINING if self.known else Needs.NOTHING,
            controls=Controls.SHARE | Controls.PHASE,
            starves="" if not self.known else "short jobs may keep long ones waiting",
            idles=WAITS,
            taxonomy=WHERE,
        )

    def decide(self, view: View) -> Plan:
        """Rank, admit as many jobs for each place as may share it, group, place."""
        order = TwoDimensional(self.known)
        return self._groups().start(view, order.rank(view), Preempt(), consolidate)

    def _groups(self) -> MuriGroups:
        return MuriGroups(self.discipline, self.size, self.ordering, self.matching)
