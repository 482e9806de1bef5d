"""Gangs that wait for nodes close together, and for fewer of them the longer they have waited.

Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters" (Philly), ATC 2019: a gang is at
first started only on as few nodes as can hold it; each time it has waited for as long again twice
as many will do, in the end any. Small jobs go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import numpy as np

from weft.core.errors import bad_values
from weft.core.model.job import Job
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import TopologyKnowledge, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.wrap.sub_cluster import decide_among
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper

TRIES = 4


@frozen
class Locality(Wrapper):
    """Start a gang on as few nodes as can hold it; every `relax_s` seconds twice as many will do.

    After `rounds` times that it may start anywhere.
    """

    relax_s: float = 600.0
    rounds: int = 3

    adds = declare(TopologyKnowledge.CONSOLIDATED)
    idles = "a gang waits for nodes close together at first"

    def __post_init__(self) -> None:
        if not self.relax_s > 0.0 or self.rounds < 1:
            raise bad_values(
                "locality", self, "relax_s rounds", "relax_s is above 0, rounds 1 or more"
            )

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, without gangs that it would spread too soon."""
        mark = view.free.mark()
        plan = ask(self.inner, view)
        hidden = np.zeros(len(view.table), dtype=bool)
        for _ in range(TRIES):
            spread = [*self._find_spread(view, plan)]
            if not spread:
                break
            view.free.rollback(mark)
            hidden[spread] = True
            plan = decide_among(self.inner, view.without(hidden))
        else:
            gone = {view.job(row).id for row in self._find_spread(view, plan)}
            hidden[[view.table.row(job) for job in gone]] = True
            kept = {job: to for job, to in plan.changes.items() if job not in gone}
            plan = replace(plan, changes=kept)
        if not hidden.any():
            return plan
        due = view.now + float((self.relax_s - view.waited()[hidden] % self.relax_s).min())
        return replace(plan, wake_at=due if plan.wake_at is None else min(due, plan.wake_at))

    def _find_spread(self, view: View, plan: Plan) -> Iterator[int]:
        """Rows that would start on more nodes than they may yet."""
        waited = view.waited()
        for job, to in plan.changes.items():
            row = view.table.row(job)
            if to is None or view.allocation(row) is not None or view.job(row).demand.nodes:
                continue
            steps = int(waited[row] // self.relax_s)
            nodes = len({part.node for part in to.slices})
            if steps < self.rounds and nodes > _fewest_nodes(view, view.job(row)) * 2**steps:
                yield row


def _fewest_nodes(view: View, job: Job) -> int:
    wanted = job.demand.kinds or view.cluster.kinds
    largest = max((node.gpus for node in view.cluster.nodes if node.kind in wanted), default=1)
    return ceil(job.demand.gpus / max(largest, 1))
