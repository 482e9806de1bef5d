"""Muri's order: remaining or attained service, large gangs first among equals."""

from __future__ import annotations

import numpy as np

from weft.core.plan.about import About, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import NeededKnowledge, Objective, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.parts import Ranking
from weft.pieces.place.gangs import Placer


@frozen
class TwoDimensional:
    """The least seconds times GPUs first: left where `known`, else executed so far."""

    known: bool = True

    admits = "preempt"

    @property
    def about(self) -> About:
        """Muri-S asks for remaining times; Muri-L does not."""
        known = NeededKnowledge.DURATIONS if self.known else NeededKnowledge.NOTHING
        return About(
            "muri",
            "Zhao et al. 2022",
            needs=Needs.REMAINING if self.known else Needs.NOTHING,
            starves="short jobs may keep long ones waiting" if self.known else "",
            taxonomy=declare(Objective.COMPLETION_TIME, known),
        )

    def settle(self, _view: View, _place: Placer) -> Plan | None:
        """Groups may be taken apart also where no job waits."""
        return None

    def rank(self, view: View) -> Ranking:
        """Equal ranks: larger gangs first, and behind them those that have only just come."""
        table = view.table
        key = (view.remaining() if self.known else view.ran()) * table.gpus
        new = table.submitted >= view.now
        size = np.where(new, 0.0, -table.gpus)
        return Ranking(view.ranked(key, new.astype(float), size), key)
