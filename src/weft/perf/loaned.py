"""Devices of loaned machines that are slower, or faster, than a cluster's own."""

from __future__ import annotations

from weft.core.model.job import Allocation, Job, NodeId
from weft.core.model.trace import Truth
from weft.core.protocols import Pace, PerfModel, SimulatedJob
from weft.frozen import frozen


@frozen
class OnLoan:
    """Another truth, where one GPU of `nodes` counts for `speed` of a GPU."""

    inner: PerfModel
    nodes: frozenset[NodeId]
    speed: float

    @property
    def steady(self) -> bool:
        """As the inner one."""
        return self.inner.steady

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """The job of the inner truth, slowed by what it holds of loaned machines."""
        return _OnLoan(self.inner.simulate_job(job, truth), self.nodes, self.speed)

    def restart(self, job: Job, *, first: bool) -> float:
        """As the inner one."""
        return self.inner.restart(job, first=first)


class _OnLoan:
    __slots__ = ("_factor", "_inner", "_nodes", "_speed")

    def __init__(self, inner: SimulatedJob, nodes: frozenset[NodeId], speed: float) -> None:
        self._inner, self._nodes, self._speed = inner, nodes, speed
        self._factor = 1.0

    def begin(self, on: Allocation, kind: str) -> None:
        """Take note of how many devices are loaned."""
        loaned = sum(len(part.gpus) for part in on.slices if part.node in self._nodes)
        self._factor = 1.0 - (1.0 - self._speed) * loaned / max(on.gpus, 1)
        self._inner.begin(on, kind)

    def pace(self, done: float, until_tick: float) -> Pace:
        """The inner pace, slower."""
        pace = self._inner.pace(done, until_tick)
        return pace._replace(rate=pace.rate * self._factor)
