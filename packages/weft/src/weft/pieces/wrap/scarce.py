"""Reserve and pack: jobs that can run elsewhere do, and leave scarce GPUs to those that need them.

Weng et al., "MLaaS in the Wild", NSDI 2022: tasks that make use of high-end GPUs get those, which
are kept for them, and all others are packed on the older ones first. A job needs a scarce kind if
it names no other, or if its hint `gpu_util` says that it would keep such a GPU busy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.core.errors import bad_values
from weft.core.model.job import Job
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Objective, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper


@frozen
class Scarce(Wrapper):
    """Keep jobs off the `kinds` of GPU (`v100/a100`) that they could do without.

    Without `kinds` it is the kind with the fewest GPUs. A job that has waited `patience_s` seconds
    may have any; so may one whose hint `gpu_util` is at least `busy` (of 1).
    """

    kinds: str = ""
    patience_s: float = 3600.0
    busy: float = 0.5

    adds = declare(Objective.GUARANTEES)
    idles = "scarce GPUs are kept for jobs that need them"

    def __post_init__(self) -> None:
        if self.patience_s < 0.0 or not 0.0 <= self.busy <= 1.0:
            raise bad_values(
                "scarce", self, "patience_s busy", "patience_s is 0 or more, busy from 0 to 1"
            )

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, where jobs that wait ask for fewer kinds."""
        scarce = self._find_scarce(view)
        others = tuple(kind for kind in view.cluster.kinds if kind not in scarce)
        young = view.waiting() & (view.waited() < self.patience_s)
        rows = {
            row: job
            for row in np.flatnonzero(young).tolist()
            if (job := self._elsewhere(view, view.job(row), others)) is not None
        }
        if not rows or not others:
            return ask(self.inner, view)
        table = view.table.pick(np.ones(len(view.table), dtype=bool))
        for row, job in rows.items():
            table.jobs[row] = job
        plan = ask(self.inner, replace(view, table=table))
        left = [row for row in rows if not plan.changes.get(view.job(row).id)]
        if not left:
            return plan
        due = view.now + self.patience_s - float(view.waited()[left].max())
        return replace(plan, wake_at=due if plan.wake_at is None else min(due, plan.wake_at))

    def _find_scarce(self, view: View) -> set[str]:
        if self.kinds:
            return set(self.kinds.split("/"))
        count = {
            kind: sum(node.gpus for node in view.cluster.nodes if node.kind == kind)
            for kind in view.cluster.kinds
        }
        return {min(count, key=lambda kind: (count[kind], kind))} if len(count) > 1 else set()

    def _elsewhere(self, view: View, job: Job, others: tuple[str, ...]) -> Job | None:
        """The job asking for other kinds alone; None if it needs a scarce one."""
        wanted = job.demand.kinds or view.cluster.kinds
        left = tuple(kind for kind in wanted if kind in others)
        needs = not left or left == tuple(wanted) or job.hints.get("gpu_util", 0.0) >= self.busy
        return None if needs else replace(job, demand=replace(job.demand, kinds=left))
