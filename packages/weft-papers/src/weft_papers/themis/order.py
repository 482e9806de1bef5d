"""Themis's order: the apps that would finish least fairly with what they hold."""

from __future__ import annotations

import numpy as np

from weft.core.plan.about import About, Needs
from weft.core.plan.taxonomy import Fairness, Knowledge, Objective, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.order.keys import Resting
from weft.pieces.parts import Later, Ranking
from weft.policies.themis.apps import Crowd
from weft.policies.themis.policy import name_app, read_apps


@frozen
class Unfairest(Resting):
    """The app first that would finish least fairly with what it holds; held for `lease` seconds.

    Finish-time fairness is the completion time over that on a private part of the cluster; who
    holds nothing comes first, the earlier before the later.
    """

    lease: float = 1200.0

    about = About(
        "themis",
        "Mahajan et al. 2020",
        needs=Needs.REMAINING,
        taxonomy=declare(Objective.FAIRNESS, Knowledge.DURATIONS, Fairness.FINISH_TIME),
    )
    admits = "preempt"

    def rank(self, view: View) -> Ranking:
        """By rho, looked at again when a lease ends."""
        kept = view.memory if isinstance(view.memory, Crowd) else Crowd()
        names = [name_app(job) for job in view.table.jobs]
        crowd = kept.advance(view.now, list(dict.fromkeys(names)))
        rho = {
            app.name: app.rho(app.holds, view.cluster.gpus, view.now)
            for app in read_apps(view, names, crowd)
        }
        key = -np.array([rho[name] for name in names])
        return Ranking(key=key, later=Later(view.now + self.lease, crowd))
