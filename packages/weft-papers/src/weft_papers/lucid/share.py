"""Lucid's pairs under any order: two jobs of equal size on devices where both stay quick."""

from __future__ import annotations

import numpy as np

from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import DeviceSharing, NeededKnowledge, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.parts import Admit, Ranking
from weft.pieces.place.gangs import Placer
from weft.pieces.share.memory_order import doublings_left, order_memory
from weft_papers.lucid.profiler_nodes import ProfilerNodes
from weft_papers.lucid.queue import MainQueue


@frozen
class LucidPairs:
    """Two jobs of equal size to a GPU where both stay quick, by what they do with a device."""

    about = About(
        "lucid",
        "Hu et al. 2023",
        needs=Needs.REMAINING,
        controls=Controls.SHARE,
        taxonomy=declare(
            DeviceSharing.SIDE_BY_SIDE, NeededKnowledge.DURATIONS | NeededKnowledge.PROFILES
        ),
    )
    with_stops = False

    def start(self, view: View, ranking: Ranking, admit: Admit, place: Placer) -> Plan:
        """Beside a running job if there is one that gets on with it, else alone."""
        nowhere = ProfilerNodes(view, 0, 0, 1.0, {})  # no job is profiled first
        measured = np.ones(len(view.table), dtype=bool)
        draft = MainQueue(view, view.remaining() * view.table.gpus, measured, {}, nowhere, place)
        waiting = ranking.rows[view.waiting()[ranking.rows]].tolist()
        draft.start_in_order(waiting, packing=True, overtaking=admit.overtakes)
        order = order_memory(view, draft.changes, doublings_left)
        return Plan(draft.changes, memory_order=order)
