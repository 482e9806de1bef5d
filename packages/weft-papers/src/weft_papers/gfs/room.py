"""Room for guaranteed jobs, made on trial where the spot jobs that give way cost least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.core.model.job import Allocation, Job
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft_papers.gfs.history import DAY_S, GfsMemory
from weft_papers.gfs.victims import SpotGuest, choose_victims, node_cost

SLACK = 1e-9
SPAN_S = 31.0 * DAY_S  # that lost work is weighed against


class GuaranteedTrial:
    """Room made for guaranteed jobs on trial, in the ledger."""

    def __init__(self, view: View, spot: Bools, known: GfsMemory) -> None:
        self._view, self._known = view, known
        self.gone: list[SpotGuest] = []
        self._on: dict[str, list[SpotGuest]] = {}
        for row in np.flatnonzero(spot & view.running()).tolist():
            on, job = view.allocation(row), view.job(row)
            assert on is not None
            run = known.runs.get(job.id)
            ran = view.now - run.since if run else 0.0
            cost = on.counted_gpus * max(ran, 1.0)
            for part in on.slices:
                guest = SpotGuest(job.id, len(part.gpus) * on.sharing.share, cost)
                self._on.setdefault(part.node, []).append(guest)

    def make_room(self, job: Job, want: int) -> bool:
        """Make room for a job, whole GPUs on one node or on several; False where it cannot be."""
        kinds = job.demand.kinds or self._view.cluster.kinds
        size = max((self._view.cluster.node_size(kind) for kind in kinds), default=0)
        if want > size or job.demand.nodes > 1:
            return self._anywhere(kinds, want)
        options = []
        for i, node in enumerate(self._view.cluster.nodes):
            guests = self._guests(node.id)
            reach = self._view.free.on(i) + sum(guest.gpus for guest in guests)
            if node.kind in kinds and reach >= want - SLACK:
                victims = choose_victims(guests, self._view.free.on(i), want)
                capacity = self._view.cluster.gpus_by_kind[node.kind]
                record = self._known.record(node.kind, self._view.now - DAY_S)
                cost = node_cost(victims, record, capacity * SPAN_S)
                options.append((reach, cost, i, victims))
        if not options:
            return False
        _, _, best, victims = min(options, key=lambda option: option[:3])
        self._stop(victims)
        if self._view.free.on(best) >= want:  # no other job counts on it
            self._view.free.take(Allocation((self._view.free.slice(best, want),)))
        return True

    def _anywhere(self, kinds: tuple[str, ...], want: int) -> bool:
        """The cheapest of the kind that has enough of them."""
        view = self._view
        for kind in kinds:
            there = [n for n in view.cluster.nodes if n.kind == kind]
            guests = {guest.job: guest for node in there for guest in self._guests(node.id)}
            whole = [
                replace(guest, gpus=float(view.held()[guest.job].gpus)) for guest in guests.values()
            ]
            idle = view.free.idle(kind)
            if idle + sum(guest.gpus for guest in whole) >= want:
                self._stop(choose_victims(whole, idle, want))
                return True
        return False

    def _guests(self, node: str) -> list[SpotGuest]:
        gone = {guest.job for guest in self.gone}
        return [guest for guest in self._on.get(node, []) if guest.job not in gone]

    def _stop(self, victims: list[SpotGuest]) -> None:
        for guest in victims:
            on = self._view.holds(guest.job)
            assert on is not None
            self._view.free.give(on)
        self.gone += victims
