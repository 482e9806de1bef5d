"""Astraea's second phase: who starts within what its tenant was granted, and who makes way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.view import View
from weft.core.state.table import Bools, Floats
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.policies.astraea.running_list import Runner
from weft.policies.astraea.tenants import SLACK


@frozen
class Leases:
    """Rows whose lease is over, time in leases, who starves, and rows in the order to choose.

    `early` are rows that may be displaced, the best served first.
    """

    ended: Bools
    in_lease: Floats
    starving: Bools
    order: list[int]
    early: list[int]


class Turn:
    """The second phase: jobs of each tenant are placed within what it was granted."""

    def __init__(self, view: View, lease: Leases, *, block: bool, by_quota: bool) -> None:
        self._view = view
        self._lease = lease
        self._block = block
        self._by_quota = by_quota
        self.started: dict[int, Allocation] = {}
        self.displaced: set[int] = set()

    def start(
        self, waiting: Sequence[int], spare: Sequence[int], used: float, allowed: float
    ) -> None:
        """Start a tenant's jobs in their order; new ones may displace those early in a lease."""
        view = self._view
        patient = not self._block and not any(self._lease.starving[row] for row in waiting)
        for row in waiting:
            gpus, new = float(view.table.need[row]), view.table.started[row] == np.inf
            if new and self._by_quota:
                used -= self._make_way(spare, used + gpus - allowed)
            fits = used + gpus <= allowed + SLACK
            on = self._place(row) if fits else None
            if on is None and new and not self._by_quota:
                on, freed = self._displace(row, spare, used + gpus - allowed)
                used -= freed
            if on is not None:
                view.free.take(on)
                self.started[row] = on
                used += gpus
            elif not patient:
                return

    def line_up(self, line: Sequence[Runner]) -> tuple[Runner, ...]:
        """The authors' list of running jobs: without the displaced, the started last."""
        view = self._view
        gone = {view.job(row).id for row in self.displaced}
        begun = [(view.job(row), on) for row, on in self.started.items()]
        more = (Runner(job.id, tenant_of(job), on) for job, on in begun)
        return (*(runner for runner in line if runner.job not in gone), *more)

    def target(self) -> dict[JobId, Allocation]:
        """What jobs hold from now on."""
        view = self._view
        held = {
            row: on
            for row, on in enumerate(view.table.allocations)
            if on is not None and not self._lease.ended[row] and row not in self.displaced
        }
        return {view.job(row).id: on for row, on in {**held, **self.started}.items()}

    def _place(self, row: int) -> Allocation | None:
        """Where it ran until now if that is free, else on the fewest nodes."""
        view = self._view
        before = view.allocation(row)
        if before is not None and view.free.fits(before):
            return before
        return fewest_nodes(view.job(row), view.free)

    def _make_way(self, spare: Sequence[int], over: float) -> float:
        """Send jobs back to wait until the quota is kept, wherever they were; GPUs given up."""
        freed = 0.0
        for victim in [row for row in spare if row not in self.displaced]:
            if freed >= over - SLACK:
                break
            held = self._view.allocation(victim)
            assert held is not None
            self._view.free.give(held)
            self.displaced.add(victim)
            freed += float(self._view.table.need[victim])
        return freed

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
