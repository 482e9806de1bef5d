"""Astraea's second phase: which jobs start within their tenants' grants, and which make way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft_papers.astraea.tenants import SLACK


@frozen
class Leases:
    """Rows whose lease is over, time in leases, starving jobs, and rows in the order to choose.

    `early` are rows that may be displaced, the best served first.
    """

    ended: Bools
    in_lease: Floats
    starving: Bools
    order: list[int]
    early: list[int]


class AstraeaDecision:
    """The second phase: jobs of each tenant are placed within what it was granted."""

    def __init__(self, view: View, lease: Leases, *, block: bool) -> None:
        self._view = view
        self._lease = lease
        self._block = block
        self.started: dict[int, Allocation] = {}
        self.displaced: set[int] = set()

    def start(
        self, waiting: Sequence[int], spare: Sequence[int], used: float, allowed: float
    ) -> None:
        """Start a tenant's jobs in their order; new ones may displace those early in a lease."""
        view = self._view
        patient = not self._block and not any(self._lease.starving[row] for row in waiting)
        for row in waiting:
            gpus = float(view.table.need[row])
            on, freed = self._seat(row, spare, used + gpus, allowed)
            used -= freed
            if on is not None:
                view.free.take(on)
                self.started[row] = on
                used += gpus
            elif not patient:
                return

    def target(self) -> dict[JobId, Allocation]:
        view = self._view
        held = {
            row: on
            for row, on in enumerate(view.table.allocations)
            if on is not None and not self._lease.ended[row] and row not in self.displaced
        }
        return {view.job(row).id: on for row, on in {**held, **self.started}.items()}

    def _seat(
        self, row: int, spare: Sequence[int], used: float, allowed: float
    ) -> tuple[Allocation | None, float]:
        """A place for a job with which so much is used, and the GPUs of jobs that made way."""
        on = self._place(row) if used <= allowed + SLACK else None
        if on is None and self._is_new(row):
            return self._displace(row, spare, used - allowed)
        return on, 0.0

    def _is_new(self, row: int) -> bool:
        return bool(self._view.table.started[row] == np.inf)

    def _place(self, row: int) -> Allocation | None:
        """Choose the devices that it had if they are free, else those on the fewest nodes."""
        view = self._view
        before = view.allocation(row)
        if before is not None and view.free.fits(before):
            return before
        return fewest_nodes(view.job(row), view.free)

    def _displace(
        self, row: int, spare: Sequence[int], over: float
    ) -> tuple[Allocation | None, float]:
        """A place for a new job by sending others back to wait, as few as need be; or none."""
        view, mark = self._view, self._view.free.mark()
        freed, victims = 0.0, []
        for victim in spare:
            held = view.allocation(victim)
            if victim in self.displaced or held is None:
                continue
            view.free.give(held)
            victims.append(victim)
            freed += float(view.table.need[victim])
            if freed >= over - SLACK and (on := self._place(row)) is not None:
                self.displaced.update(victims)
                return on, freed
        view.free.rollback(mark)
        return None, 0.0


def tenant_of(job: Job) -> str:
    """The tenant that a job counts for: its user where none is named."""
    return job.tenant or job.user
