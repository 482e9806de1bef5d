"""Recorded durations taken at face value: a job on what it asked for runs at speed 1."""

from __future__ import annotations

from weft.core.knowledge.profile import Profile
from weft.core.model.job import Allocation, Job
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Pace, SimulatedJob
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
        return Steady(job.demand.gpus)

    def retimed(self, trace: Trace) -> Trace:
        """As it was recorded."""
        return trace

    def profile(self, job: Job) -> Profile:
        """What came with the job."""
        return profile_of(job)

    def restart(self, job: Job, *, first: bool) -> float:
        """Nothing at the first start, which the recorded duration includes."""
        if first:
            return 0.0
        return restart_s(job.model) if self.restart_cost is None else self.restart_cost


class Steady:
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
        """Always the same."""
        return self._pace


FULL = Pace(1.0)
