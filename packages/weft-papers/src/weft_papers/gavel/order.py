"""Gavel's order: the job that has had least of the time that the program gives it."""

from __future__ import annotations

import numpy as np

from weft.core.plan.about import About
from weft.core.plan.taxonomy import Fairness, NeededKnowledge, Objective, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.order.keys import RestingOrder
from weft.pieces.parts import NextDecision, Ranking
from weft_papers.gavel.objectives import max_min_fairness
from weft_papers.gavel.reading import read_problem


@frozen
class OwedTime(RestingOrder):
    """The job first whose share of time by max-min fairness is largest against what it has had.

    As Gavel's rounds of `round` seconds with every one solved: no received time is forgotten. The
    kinds that the program has in mind are not kept to.
    """

    round: float = 360.0

    about = About(
        "gavel",
        "Narayanan et al. 2020",
        taxonomy=declare(Objective.FAIRNESS, NeededKnowledge.SPEEDS, Fairness.JOBS),
    )
    admits = "preempt"

    def rank(self, view: View) -> Ranking:
        """By share over the part of all time that was received, with half a round of credit."""
        kinds = view.cluster.kinds
        gpus = np.array([float(view.cluster.gpus_by_kind[kind]) for kind in kinds])
        share = max_min_fairness(read_problem(view, kinds, gpus, packed=False)).alone.sum(axis=1)
        owed = share / (view.ran() + self.round / 2.0)
        return Ranking(key=-owed, later=NextDecision(view.now + self.round))
