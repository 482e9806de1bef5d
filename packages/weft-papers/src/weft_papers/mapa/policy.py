"""MAPA: a job's communication pattern is matched on the links between free GPUs.

Paper       Ranganath, Suetterlein, Manzano, Song, Wong, "MAPA: Multi-Accelerator Pattern
            Allocation Policy for Multi-Tenant GPU Servers", SC 2021.
Objective   execution time of jobs that depend on bandwidth; NVLink is kept for them.
Needs       how the cluster is connected, and each job's traffic: pattern, sensitive or not.
Controls    which jobs run, and which GPUs of a node. `rule` is preserve, greedy, socket (the
            paper's topo-aware) or lowest (its baseline, by id).
Cost        a lookup by the set of free GPUs for each node with room; the first time for a type
            of node and a pattern O(2^n n^2) for n GPUs, O(C(n, k)) for a new set of free ones.
Deviations  a set is scored by its best order, not all orders one by one: the same choice. Nodes
            other than the DGX-1V have no published fit: there a ring is as fast as its slowest
            link. Jobs that declare no traffic are treated as rings that depend on bandwidth. Among
            nodes the best match wins, then the fullest; gangs too large for a node take the fewest
            nodes. On a cluster without described links it is fifo.
"""

from __future__ import annotations

import numpy as np

from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import (
    NeededKnowledge,
    Objective,
    Preemption,
    TopologyKnowledge,
    classify,
)
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.admit.starting import BEHIND
from weft.pieces.pack import backfill, in_turn
from weft.pieces.place.matching import Rule, match

WHERE = classify(
    Objective.COMPLETION_TIME, NeededKnowledge.TRAFFIC, Preemption.NEVER, TopologyKnowledge.LINKS
)


@frozen
class Mapa:
    """First come, first served, on the GPUs whose links match."""

    rule: Rule = "preserve"
    backfill: bool = False

    @property
    def about(self) -> About:
        """Strict order starves no job; with backfill large jobs may be overtaken forever."""
        starves = "overtaking" if self.backfill else ""
        return About(
            "mapa",
            "Ranganath et al. 2021",
            starves=starves,
            idles="" if self.backfill else BEHIND,
            ties=Ties.NONE,
            taxonomy=WHERE,
        )

    def decide(self, view: View) -> Plan:
        """Rows are in order of submission already."""
        order = np.arange(len(view.table))
        start = backfill if self.backfill else in_turn
        return start(view, order, match(self.rule))
