"""Recorded durations taken at face value, and devices of loaned machines at another speed."""

from __future__ import annotations

from weft.core.knowledge.profile import Profile
from weft.core.model.job import Allocation, Job, NodeId
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Pace, PerfModel, SimulatedJob
from weft.frozen import frozen
from weft.perf.restart import restart_s
from weft.perf.sharing.colocation import CONTENTION
from weft.perf.sharing.hinted_profile import profile_of


@frozen
class Replay:
    """Speed in proportion to GPUs, the same on every kind and wherever they are.

    `restart_cost` overrides what a restart costs; None lets the job's model say.
    """

    restart_cost: float | None = None

    steady = True
    contention = CONTENTION
    gaps = False
    interruption = None

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:  # noqa: ARG002 - the same for every truth
        """A job that runs at one speed."""
        return LinearSpeed(job.demand.gpus)

    def retimed(self, trace: Trace) -> Trace:
        return trace

    def profile(self, job: Job) -> Profile:
        return profile_of(job)

    def restart(self, job: Job, *, first: bool) -> float:
        """Nothing at the first start, which the recorded duration includes."""
        if first:
            return 0.0
        return restart_s(job.model) if self.restart_cost is None else self.restart_cost


class LinearSpeed:
    """Runs at GPUs held over GPUs asked for."""

    __slots__ = ("_asked", "_pace")

    def __init__(self, asked: int) -> None:
        self._asked = asked
        self._pace = FULL

    def begin(self, on: Allocation, kind: str) -> None:  # noqa: ARG002 - blind to kinds
        """Take note of the size."""
        held = on.gpus
        self._pace = FULL if held == self._asked else Pace(held / self._asked)

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002
        return self._pace


FULL = Pace(1.0)


@frozen
class OnLoan:
    """Another truth, where one GPU of `nodes` counts for `speed` of a GPU."""

    inner: PerfModel
    nodes: frozenset[NodeId]
    speed: float

    @property
    def steady(self) -> bool:
        return self.inner.steady

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """The job of the inner truth, slowed by what it holds of loaned machines."""
        return _OnLoan(self.inner.simulate_job(job, truth), self.nodes, self.speed)

    def restart(self, job: Job, *, first: bool) -> float:
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
        pace = self._inner.pace(done, until_tick)
        return pace._replace(rate=pace.rate * self._factor)
