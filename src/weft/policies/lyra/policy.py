"""Lyra: elastic jobs on loaned machines: base workers shortest first, flexible ones by knapsack.

Paper       Li et al., "Lyra: Elastic scheduling for deep learning clusters", EuroSys 2023.
Objective   mean completion time and queueing, on machines that an inference cluster lends and
            takes back, with few jobs stopped when it does.
Needs       an estimate of each job's remaining time, unless `order=fifo`; beliefs about goodput
            where there are any, else speed in proportion to GPUs.
Controls    who runs, on how many GPUs between what a job needs and what it can use, and where.
Cost        O(n log n) to order n waiting jobs and O(nodes) for each that starts; the knapsack
            O(free GPUs x sizes) by dynamic programming; O(loaned nodes x jobs on them) for each
            machine given back.
Deviations  a job's least size is its base demand, and a worker is one GPU: nothing says how many a
            worker has. In units of two and four GPUs jobs take 1.000 and 1.004 times as long
            (`python -m benchmarks.papers.lyra --workers --quick --seeds 3`). How many machines are
            lent is not the policy's to say: the loan is a fact,
            with what its owner needs known when an interval begins. Only simulations have loans; a
            live service drains the machines that a person names: chosen at random, they stop 1.29
            times as many jobs as by the paper's cost. A gang is of one kind here, as every engine
            starts them, so flexible workers use loaned machines of the kind of the base ones: with
            loaned GPUs of another kind jobs take 1.89 h on average, else 1.72 h
            (`python -m benchmarks.papers.lyra`); slower ones count as others in the knapsack.
            Stopped jobs keep their progress. Ties of the server preemption cost go to fewest jobs,
            which repairs some of its mistakes; `reclaim=exact` searches for the best set. Gangs go
            on as few nodes as possible, own ones before loaned ones before both. A job that takes
            a part of a GPU is never elastic.
"""

from __future__ import annotations

from typing import Literal

from weft.core.plan.about import About, Controls, Needs, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Elasticity, Knowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.reclaim import Rule
from weft.policies.lyra.allocator import Allocator

WHERE = classify(
    Objective.COMPLETION_TIME | Objective.UTILIZATION,
    Knowledge.DURATIONS | Knowledge.SPEEDS,
    Preemption.RESIZES | Preemption.STOPS,
    Elasticity.GPUS,
)


@frozen
class Lyra:
    """Base workers to the shortest jobs first, then flexible ones to whoever saves most time.

    `order` is that of waiting jobs, `scale` false gives base workers alone. `reclaim` chooses the
    machines to give back: by server preemption cost, by exact search, by fewest jobs, or at random.
    A change of size costs `resize_s` seconds.
    """

    order: Literal["sjf", "fifo"] = "sjf"
    scale: bool = True
    reclaim: Rule = "cost"
    resize_s: float = 0.0

    @property
    def about(self) -> About:
        """Reads remaining times unless jobs go in order of arrival."""
        return About(
            "lyra",
            "Li et al. 2023",
            needs=Needs.NOTHING if self.order == "fifo" else Needs.REMAINING,
            controls=Controls.COUNT,
            ties=Ties.NONE,
            idles="" if self.scale else "nobody gets more than its base workers",
            taxonomy=WHERE,
            resize_s=self.resize_s,
        )

    def decide(self, view: View) -> Plan:
        """Give back what is wanted, start by base demand, hand out the rest."""
        if view.empty:
            return Plan()
        desk = Allocator(view, estimates=self.order == "sjf")
        if view.recalled:
            desk.give_back(view.recalled, self.reclaim)
        desk.set_flexible_aside()
        desk.start_waiting()
        if self.scale:
            desk.hand_out()
        return desk.plan()
