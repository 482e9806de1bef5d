"""A simulation that begins in the middle: with jobs that already run and wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from weft.core.events.actions import Action, Start, Wake
from weft.core.events.event import Decided, Event, Submitted, Suspended, Woken
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, JobId
from weft.core.scheduler import Scheduler
from weft.core.state.cells import TableColumns
from weft.core.state.table import JobTable
from weft.sim.collect import draw_timeline
from weft.sim.driver import Simulation
from weft.sim.physics import NEVER, Physics
from weft.sim.result import TimelineBar

CARRIED = (TableColumns.STARTED, TableColumns.RETRIES, TableColumns.FAILED)
LULL = 1 / 32  # of the time looked ahead: what comes then is not known to the minute anyway


class Fork(Simulation):
    """Every job of `table` as it stands at `now`.

    `scheduler` is fresh, on an empty cluster; `physics` has the same jobs, each as
    long as what is left of it. Policies that wake up to look again do so the less often the further
    ahead it is, while nothing happens and they change nothing: most of their decisions are such.
    """

    def __init__(
        self, scheduler: Scheduler, physics: Physics, cluster: Cluster, table: JobTable, now: float
    ) -> None:
        super().__init__(scheduler, physics, cluster)
        self._began = now
        self._still = False
        self._arrived = len(physics.trace)
        self._resume(table)

    def until_started(
        self, job: JobId, decisions: int, spent: Callable[[], bool] = lambda: False
    ) -> float | None:
        """The first start of a job from here; None if `decisions` more do not bring that.

        Nor if `spent` says before that no more can be afforded.
        """
        seq = self._physics.seq_of[job]
        self._scheduler.state.wake_at = self._began
        self._settle(self._began, [Woken()])
        while np.isnan(self._physics.first_start[seq]):
            now = self._next_time()
            if now == NEVER or self.counts.decisions > decisions or spent():
                return None
            self._settle(now, self._happening(now))
        return float(self._physics.first_start[seq])

    def to_the_end(
        self, decisions: int, spent: Callable[[], bool] = lambda: False
    ) -> dict[JobId, tuple[float | None, float | None]]:
        """Start and end of each job from here; None where `decisions` do not bring that.

        It also ends where `spent` says that no more can be afforded.
        """
        physics = self._physics
        self._scheduler.state.wake_at = self._began
        self._settle(self._began, [Woken()])
        while self._left and self.counts.decisions <= decisions and not spent():
            now = self._next_time()
            if now == NEVER:
                break
            self._settle(now, self._happening(now))
        pairs = zip(physics.first_start.tolist(), physics.ended_at.tolist(), strict=True)
        return {
            job.id: (_reached(start), _reached(end))
            for (job, _), (start, end) in zip(physics.trace, pairs, strict=True)
        }

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    @property
    def stuck(self) -> bool:
        """True if nothing will happen any more, and jobs wait."""
        return bool(self._left) and self._next_time() == NEVER

    @property
    def timeline(self) -> Sequence[TimelineBar]:
        """Jobs on GPUs by time, as far as simulated, if small enough to look at."""
        return draw_timeline(self._physics, self._cluster)

    def _settle(self, now: float, events: list[Event]) -> None:
        self._still = all(isinstance(event, Woken) for event in events)
        super()._settle(now, events)
        asked = self._scheduler.state.wake_at
        if asked is not None:
            soonest = now + LULL * (now - self._began) if self._still else asked
            self._wake = max(asked, soonest)

    def _carry_out(self, now: float, action: Action) -> Iterable[Event]:
        self._still = self._still and isinstance(action, Wake)
        return super()._carry_out(now, action)

    def _resume(self, table: JobTable) -> None:
        """Bring scheduler and physics to where the table is."""
        scheduler, now = self._scheduler, self._began
        for job, seq in zip(table.jobs, table.seq, strict=True):
            scheduler.state.submissions = int(seq)  # what is known about jobs is kept by number
            scheduler.apply_event(now, Submitted(job))
            if job.id in table.suspended:
                scheduler.apply_event(now, Suspended(job.id))
        own = scheduler.state.table
        held: Mapping[JobId, Allocation | None] = {
            job.id: on
            for job, on in zip(table.jobs, table.allocations, strict=True)
            if on is not None
        }
        for action in scheduler.state.fold(now, Decided(0, held)):
            assert isinstance(action, Start)
            for event in self._carry_out(now, action):
                scheduler.apply_event(now, event)
        ran, service = table.ran(now), table.service(now)
        for row in range(len(table)):
            own.set(row, TableColumns.RAN_BASE, float(ran[row]))
            own.set(row, TableColumns.SERVICE_BASE, float(service[row]))
            for which in CARRIED:
                own.set(row, which, table.get(row, which))


def _reached(at: float) -> float | None:
    return None if np.isnan(at) else at
