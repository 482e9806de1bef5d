"""Workloads to replay: jobs with their truth. Policies may not import this module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from enum import Flag, auto
from typing import Protocol

from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.frozen import frozen


class FallingLoss(Protocol):
    """The true fall of a job's loss over the `iterations` of the whole job."""

    @property
    def iterations(self) -> float: ...

    def measured(self, first: int, last: int) -> Floats:
        """The losses that the job sees after each of the iterations from `first` to `last`."""
        ...

    def reached(self, part: float) -> float:
        """Iterations until the loss has fallen by a part of all that it falls in the job."""
        ...


@frozen
class Truth:
    """The truth about a job, known to the simulator alone.

    `length` is seconds of work on the allocation the trace ran with. `failures` are points of
    progress, in the same seconds, at which a run of the job dies and must be retried. `state`
    is how the job ended in the trace; `censored` says that `length` is only a lower bound. `curve`
    is how its loss falls, None where it is not needed. `schedule` is (batch size, epochs) in order,
    of a job that changes its batch size as it trains.
    """

    length: float
    failures: tuple[float, ...] = ()
    state: str = "completed"
    censored: bool = False
    curve: FallingLoss | None = None
    schedule: tuple[tuple[int, int], ...] = ()


class Detail(Flag):
    """Details that the jobs of a trace declare beyond how long they took.

    Set by the trace's format.
    """

    NOTHING = 0
    LAYERS = auto()  # some have layers, and perhaps servers: their speed follows from those
    LOSSES = auto()  # the truth of some has a loss to follow
    REGIMES = auto()  # some change their batch size, and so their speed, as they train


@frozen
class LoadReport:
    """The number of rows that a loader read, kept, and dropped for which reason."""

    rows: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@frozen
class Trace:
    """A workload: `(job, truth)` pairs in order of submission.

    `cluster` is a cluster string that suits the workload, used when the user names none;
    `weights` likewise are what its users and tenants are entitled to against each other.
    """

    name: str
    jobs: tuple[tuple[Job, Truth], ...]
    cluster: str = ""
    origin: datetime | None = None
    report: LoadReport = LoadReport()
    detail: Detail = Detail.NOTHING
    weights: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[tuple[Job, Truth]]:
        return iter(self.jobs)

    @property
    def gpu_seconds(self) -> float:
        """Work in the whole trace, as recorded."""
        return sum(t.length * j.demand.gpus * j.demand.share for j, t in self.jobs)

    def load(self, gpus: int) -> float:
        """Offered load on `gpus` devices over the span of arrivals."""
        if not self.jobs:
            return 0.0
        span = self.jobs[-1][0].submitted - self.jobs[0][0].submitted
        return self.gpu_seconds / (gpus * span) if span > 0 else float("inf")
