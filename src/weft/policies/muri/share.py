"""Muri's groups under any order: jobs that use different resources take turns on devices."""

from __future__ import annotations

from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Discipline
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Knowledge, Sharing, Taxonomy
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.parts import Admit, Ranking
from weft.pieces.place.gangs import Placer
from weft.policies.muri.admit import Admission
from weft.policies.muri.group import Grouping
from weft.policies.muri.place import Placement
from weft.policies.muri.queue import RESOURCES, Queue


@frozen
class Groups:
    """Groups of jobs with complementary stages share GPUs, up to `size` on each.

    `ordering` is what stands in a group's period: the best order of stages, or the worst.
    `matching` false groups neighbours in rank.
    """

    discipline: Literal["lockstep", "work-conserving"] = "lockstep"
    size: int = 4
    ordering: Literal["best", "worst"] = "best"
    matching: bool = True

    about = About(
        "muri",
        "Zhao et al. 2022",
        controls=Controls.SHARE | Controls.PHASE,
        taxonomy=Taxonomy(sharing=Sharing.INTERLEAVED, knowledge=Knowledge.PROFILES),
    )
    with_stops = True

    def __post_init__(self) -> None:
        if not 1 <= self.size <= RESOURCES:
            raise InvalidConfig(
                f"muri groups 1 to {RESOURCES} jobs, not {self.size}",
                hint="there is one slot for each of storage, CPU, GPU and network",
            )

    def start(self, view: View, ranking: Ranking, _admit: Admit, place: Placer) -> Plan:
        """Admit as many jobs for each place as may share it, group, place."""
        movable = view.preemptible() | view.waiting()
        key = ranking.key
        if key is None:
            key = np.empty(len(view.table))
            key[ranking.rows] = np.arange(len(ranking.rows))
        queue = Queue(view, ranking.rows[movable[ranking.rows]], key, self.size, place)
        admission = Admission(queue)
        buckets = admission.admit()
        discipline = Discipline(self.discipline)
        Grouping(queue, discipline, admission.types, matching=self.matching).group(buckets)
        best = self.ordering == "best"
        return Placement(queue, discipline, admission.types, best_order=best).place(buckets)
