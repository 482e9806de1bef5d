"""Themis's order: the apps that would finish least fairly with what they hold."""

from __future__ import annotations

import numpy as np

from weft.core.plan.about import About, Needs
from weft.core.plan.taxonomy import Fairness, NeededKnowledge, Objective, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.order.keys import RestingOrder
from weft.pieces.parts import NextDecision, Ranking
from weft_papers.themis.apps import Crowd, rank_apps
from weft_papers.themis.policy import name_app, read_apps


@frozen
class Unfairest(RestingOrder):
    """The app first that would finish least fairly with what it holds; held for `lease` seconds.

    Finish-time fairness is the completion time over that on a private part of the cluster. Apps
    that hold nothing come first, by what it would be with their least gang.
    """

    lease: float = 1200.0

    about = About(
        "themis",
        "Mahajan et al. 2020",
        needs=Needs.REMAINING,
        taxonomy=declare(Objective.FAIRNESS, NeededKnowledge.DURATIONS, Fairness.FINISH_TIME),
    )
    admits = "preempt"

    def rank(self, view: View) -> Ranking:
        """Rank apps by rho, which is computed again when a lease ends."""
        kept = view.memory if isinstance(view.memory, Crowd) else Crowd()
        names = [name_app(job) for job in view.table.jobs]
        crowd = kept.advance(view.now, list(dict.fromkeys(names)))
        ranked = rank_apps(read_apps(view, names, crowd), view.cluster.gpus, view.now)
        place = {app.name: float(number) for number, app in enumerate(ranked)}
        key = np.array([place[name] for name in names])
        return Ranking(key=key, later=NextDecision(view.now + self.lease, crowd))
