"""The profiler corner: a few nodes where jobs run briefly, to be measured or to be done."""

from __future__ import annotations

from collections.abc import Iterator

from weft.core.model.job import Allocation, JobId, NodeId
from weft.core.plan.view import View

FEWEST = 4  # smaller clusters cannot spare a node
EPS = 1e-6


class ProfilerNodes:
    """The corner during one decision: which jobs leave it, which enter, until when they stay."""

    def __init__(
        self, view: View, nodes: int, gpus: int, limit_s: float, since: dict[JobId, float]
    ) -> None:
        self.changes: dict[JobId, Allocation | None] = {}
        self._view = view
        self._limit_s = limit_s
        self._gpus = gpus
        self._nodes = _last(view, nodes)
        here = {view.cluster.nodes[node].id for node in self._nodes}
        held = view.held()
        self.since = {
            job: at for job, at in since.items() if job in held and _inside(held[job], here)
        }

    def __contains__(self, row: int) -> bool:
        return self._view.job(row).id in self.since

    def release(self) -> list[int]:
        """Take out jobs that were there long enough; all rows that hold nothing now."""
        waiting = [int(row) for row in range(len(self._view.table)) if self._free(row)]
        for job, at in list(self.since.items()):
            if self._view.now < at + self._limit_s - EPS:
                continue
            on = self._view.holds(job)
            assert on is not None
            self._view.free.give(on)
            self.changes[job] = None
            del self.since[job]
            waiting.append(self._view.table.row(job))
        return sorted(waiting)

    def may_profile(self, row: int) -> bool:
        """Return true if a job may be profiled at all."""
        job = self._view.job(row)
        nodes = [self._view.cluster.nodes[node] for node in self._nodes]
        kinds = job.demand.kinds
        return (
            job.stoppable
            and job.demand.share == 1.0
            and job.demand.gpus <= self._gpus
            and any(n.gpus >= job.demand.gpus and (not kinds or n.kind in kinds) for n in nodes)
        )

    def admit(self, rows: list[int]) -> None:
        """Fewest GPUs first, strictly in order; each on the fullest node that holds it."""
        free = self._view.free
        for row in sorted(rows, key=lambda r: (self._view.job(r).demand.gpus, r)):
            job = self._view.job(row)
            kinds, gpus = job.demand.kinds, job.demand.gpus
            nodes = [
                node
                for node in self._nodes
                if free.on(node) >= gpus
                and (not kinds or self._view.cluster.nodes[node].kind in kinds)
            ]
            if not nodes:
                return
            on = Allocation((free.slice(min(nodes, key=free.on), gpus),))
            free.take(on)
            self.changes[job.id] = on
            self.since[job.id] = self._view.now

    def close(self) -> None:
        """Keep the main queue out of what is free here."""
        free = self._view.free
        for node in self._nodes:
            if free.on(node):
                free.take(Allocation((free.slice(node, free.on(node)),)))

    def next_end(self) -> Iterator[float]:
        """Yield when each job inside reaches the profiling limit."""
        return (at + self._limit_s for at in self.since.values())

    def _free(self, row: int) -> bool:
        return self._view.allocation(row) is None


def _inside(on: Allocation, here: set[NodeId]) -> bool:
    return all(part.node in here for part in on.slices)


def _last(view: View, count: int) -> list[int]:
    """The last nodes of the cluster, unless it is small or a job needs them to run at all."""
    cluster = view.cluster
    if not count or len(cluster.nodes) < max(FEWEST, count + 1):
        return []
    corner = list(range(len(cluster.nodes) - count, len(cluster.nodes)))
    rest: dict[str, int] = {}
    for node in cluster.nodes[: len(cluster.nodes) - count]:
        rest[node.kind] = rest.get(node.kind, 0) + node.gpus
    for demand in {job.demand for job in view.table.jobs}:
        kinds = demand.kinds or cluster.kinds
        if demand.gpus > max(rest.get(kind, 0) for kind in kinds):
            return []
    return corner
