"""Tiresias: discretised two-dimensional priorities, and consolidation only where it pays.

Paper       Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI
            2019.
Objective   mean completion time without knowing how long jobs take, with few preemptions.
Needs       the model a job trains, for its skew; with `priority=gittins` also the GPU-seconds
            of finished jobs.
Controls    who runs, and whether a gang must be consolidated.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  inside a queue the default keeps running jobs first, as the authors' simulator
            does; `rule=start` is the paper's order by first start. Demotions are noticed at
            the exact instant; the authors' simulator is late for gangs. Unknown models are not
            consolidated. `pack_limit` is given, not learned online.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from weft.core.about import About, Needs
from weft.core.errors import InvalidConfig
from weft.core.plan import Plan
from weft.core.table import Rows
from weft.core.view import View
from weft.pieces.order.gittins import gittins_index, past_service
from weft.pieces.order.queues import Queues, Standing
from weft.pieces.place.skew import by_skew
from weft.pieces.queued import queue_jobs


@dataclass(frozen=True, slots=True)
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
        needs = Needs.MODEL | (Needs.HISTORY if self.priority == "gittins" else Needs.NOTHING)
        starves = "" if self.knob else "a stream of young jobs"
        return About("tiresias", "Gu et al. 2019", needs=needs, starves=starves)

    def __post_init__(self) -> None:
        if list(self.thresholds) != sorted(set(self.thresholds)) or not self.thresholds:
            raise InvalidConfig(
                f"tiresias: thresholds {self.thresholds} must be increasing",
                hint="for example tiresias:thresholds=3250/7200",
            )

    def decide(self, view: View) -> Plan:
        """Scan the queues, first fit, each job where its skew lets it be."""
        knob = np.inf if self.knob is None else self.knob
        queues = Queues(self.thresholds, sticky=self.rule == "sticky", knob=knob)
        order = self._by_index if self.priority == "gittins" else None
        return queue_jobs(view, queues, by_skew(self.pack_limit), order)

    def _by_index(self, view: View, standing: Standing) -> Rows:
        """Queue by queue by Gittins index of the queue's quantum; first come in the last."""
        quantum = np.append(self.thresholds, 1.0)[standing.queue.astype(int)]
        attained = view.service() - standing.service0
        index = gittins_index(past_service(view.history), attained, quantum)
        index[standing.queue >= len(self.thresholds)] = 0.0
        return view.ranked(standing.queue, -index)
