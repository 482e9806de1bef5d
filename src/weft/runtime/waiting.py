"""Why jobs wait, from what is true at this moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.core.about import About, Controls
from weft.core.cluster import Node
from weft.core.free import EPS, Free
from weft.core.model import Allocation, Demand, Job, JobId
from weft.core.reasons import Blocker, Reason, asks_for, name_some
from weft.core.scheduler import Scheduler
from weft.core.startable import awaited_by, find_kept_back
from weft.core.table import Column
from weft.runtime.backoff import pause_s
from weft.runtime.ledger import JobRecord

if TYPE_CHECKING:
    from weft.runtime.driver import Driver


@dataclass(frozen=True, slots=True)
class Waits:
    """One instant: the machines there are, what is free, who decides and when.

    `nodes` are all machines, those that are away too. `trouble` is why nobody decides, empty if
    somebody does. `kept_back` are jobs that no policy is asked about yet.
    """

    free: Free
    nodes: Sequence[Node]
    about: About
    policy: str
    now: float
    wake_at: float | None = None
    trouble: str = ""
    kept_back: frozenset[JobId] = frozenset()

    def because(self, job: Job, said: str = "") -> Reason:
        """The one thing that keeps a job waiting; `said` is what the last decision told it."""
        if said:
            return Reason(Blocker.SAID, {"text": said})
        if self.trouble:
            return Reason(Blocker.NOBODY, {"trouble": self.trouble})
        return self._away(job.demand) or self._taken(job.demand) or self._kept_back(job.demand)

    def _away(self, demand: Demand) -> Reason | None:
        up = self.free.cluster.index
        could = [node for node in self.nodes if not demand.kinds or node.kind in demand.kinds]
        away = [node for node in could if node.id not in up]
        there = self.free.cluster.gpus_by_kind
        most = max((there.get(node.kind, 0) for node in could), default=0)
        if not away or most >= self._least(demand):
            return None
        numbers = {"asks": self._asks(demand), "away": len(away), "nodes": len(could)}
        return Reason(Blocker.AWAY, numbers)

    def _taken(self, demand: Demand) -> Reason | None:
        kinds = [k for k in self.free.kinds if not demand.kinds or k in demand.kinds]
        free = {kind: float(self.free.idle(kind)) for kind in kinds}
        if demand.share < 1.0 and any(self.free.with_room(kind, demand.share) for kind in kinds):
            return None
        most = max(free.values(), default=0.0)
        if most + EPS < self._least(demand):
            return Reason(Blocker.GPUS, {"asks": self._asks(demand), "free": most})
        hosted = any(self._hosted(kind, demand) for kind in kinds)
        return None if hosted else Reason(Blocker.HOST, {"asks": self._asks(demand)})

    def _hosted(self, kind: str, demand: Demand) -> bool:
        """Whether enough free devices of a kind have their part of the host beside them."""
        found = 0
        for i, node in enumerate(self.free.cluster.nodes):
            count = self.free.on(i) if node.kind == kind else 0
            while count and not self.free.fits(Allocation((self.free.slice(i, count),))):
                count -= 1
            found += count
        return found >= self._least(demand)

    def _kept_back(self, demand: Demand) -> Reason:
        asks = self._asks(demand)
        if self.about.every is not None and self.wake_at is not None:
            seconds = max(self.wake_at - self.now, 0.0)
            return Reason(Blocker.ROUND, {"asks": asks, "seconds": seconds})
        return Reason(Blocker.TURN, {"asks": asks, "policy": self.policy})

    def _least(self, demand: Demand) -> int:
        return demand.min if Controls.COUNT in self.about.controls else demand.gpus

    def _asks(self, demand: Demand) -> str:
        return asks_for(self._least(demand), demand.kinds, demand.share)


def waits_of(driver: Driver) -> Waits:
    """Why jobs of a live scheduler wait now."""
    scheduler = driver.scheduler
    about, state = scheduler.policy.about, scheduler.state
    nodes = [node for node, _ in driver.nodes()]
    trouble, now = driver.decisions.undecided, driver.now
    table = state.table
    kept_back = find_kept_back(table).nonzero()[0] if table.conditional else ()
    names = frozenset(table.jobs[row].id for row in kept_back)
    return Waits(state.free, nodes, about, about.name, now, state.wake_at, trouble, names)


def why_waits(waits: Waits, scheduler: Scheduler, record: JobRecord) -> Reason:
    """The same for a job of a live scheduler, which may have failed before."""
    table, job = scheduler.state.table, record.job
    if awaited := awaited_by(job, table):
        return Reason(Blocker.DEPENDENCY, {"jobs": name_some(awaited)})
    if job.id in waits.kept_back:
        return Reason(Blocker.PARALLEL, {"app": job.app, "limit": job.max_parallel})
    row = table.row(job.id)
    retries = table.get(row, Column.RETRIES)
    left = table.get(row, Column.FAILED) + pause_s(job, retries) - waits.now if retries else 0.0
    if left > 0.0:
        what = f" ({first})" if (first := record.reason.partition("\n")[0][:120]) else ""
        return Reason(Blocker.FAILED, {"what": what, "seconds": left})
    return waits.because(job, record.said)
