"""Simple ways to serve jobs of workers and servers, under the same limits as SMD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.model.job import Allocation, JobId
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.formulas.training.tasks import tasks_of
from weft_papers.optimus.tasks import NodeRemainder, place_evenly


@dataclass(frozen=True, slots=True)
class InOrder:
    """Jobs in order of arrival, each with the workers it asked for, to its end.

    `ratio` is how many servers there are for each worker, 0 as many as were asked for. With
    `strict` nobody overtakes a job that waits.
    """

    name: str
    ratio: float = 0.0
    strict: bool = True
    interval: float = 60.0
    node_gbps: float = 25.0

    @property
    def about(self) -> About:
        """Decides once an interval, as SMD does."""
        return About(self.name, "baseline", controls=Controls.HOST, every=self.interval)

    def decide(self, view: View) -> Plan:
        """Place the waiting while there is room."""
        room = NodeRemainder(view, self.node_gbps)
        changes: dict[JobId, Allocation | None] = {}
        for row in np.flatnonzero(view.waiting()).tolist():
            job = view.job(row)
            tasks = tasks_of(job)
            assert tasks is not None
            workers = job.demand.gpus
            servers = max(round(self.ratio * workers), 1) if self.ratio else tasks.servers
            place = place_evenly(tasks, workers, servers, room, view.cluster.kinds[0])
            if place is not None:
                room.take(job, place)
                changes[job.id] = place
            elif self.strict:
                break
        return Plan(changes)


FIFO = InOrder("fifo")
RATIO = InOrder("ratio", ratio=1.0, strict=False)
