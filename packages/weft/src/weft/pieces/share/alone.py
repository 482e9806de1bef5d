"""Devices of one's own."""

from __future__ import annotations

from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import DeviceSharing, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.parts import Admit, Ranking
from weft.pieces.place.gangs import Placer


@frozen
class Alone:
    """No job shares a device, except those that asked for a part of one."""

    about = About("alone", "baseline", taxonomy=declare(DeviceSharing.EXCLUSIVE))
    with_stops = None

    def start(self, view: View, ranking: Ranking, admit: Admit, place: Placer) -> Plan:
        return admit.start(view, ranking, place)
