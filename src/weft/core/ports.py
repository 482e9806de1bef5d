"""The protocols that parts plug into, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from weft.core.model import Allocation, Config, Job
from weft.core.table import Floats, Table
from weft.core.trace import Truth


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a job gets on, for how long before it must be asked again, and what it reports.

    `rate` is progress per second; 1 is the speed of the allocation the job asked for.
    """

    rate: float
    seconds: float = inf
    report: Mapping[str, float] | None = None


class Agent(Protocol):
    """One job's own behaviour in a simulation: how it uses what it was given."""

    def begin(self, on: Allocation, kind: str) -> None:
        """The job starts on an allocation."""
        ...

    def pace(self, done: float, until_tick: float) -> Pace:
        """The pace from here, with `done` seconds of work behind and a round ending ahead."""
        ...


class PerfModel(Protocol):
    """The truth about speeds, for the simulator."""

    @property
    def steady(self) -> bool:
        """Whether a job's pace never changes while it holds an allocation."""
        ...

    def agent(self, job: Job, truth: Truth) -> Agent:
        """The behaviour of one job."""
        ...

    def restart(self, job: Job, *, first: bool) -> float:
        """Seconds without progress at the beginning of a run."""
        ...


class Beliefs(Protocol):
    """What the scheduler believes about speeds, from what jobs reported of themselves."""

    def observe(self, job: Job, kind: str, values: Mapping[str, float]) -> None:
        """A running job reported."""
        ...

    def forget(self, job: Job) -> None:
        """A job has left."""
        ...

    def rates(self, table: Table, kinds: Sequence[str]) -> Floats:
        """Rows x kinds: speed on as many GPUs as asked for; 0 where a job cannot run."""
        ...

    def goodputs(self, table: Table, configs: Sequence[Config]) -> Floats:
        """Rows x configurations: useful samples per second.

        0 where a job cannot run; NaN in the rows of jobs that nothing is known of yet.
        """
        ...

    def blind_goodputs(
        self, table: Table, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        """Rows x shapes: goodput as if all kinds were one; NaN in rows of unknown jobs.

        Batch limits are those of the first of `kinds` that a job can use.
        """
        ...

    def units(self, table: Table, kinds: Sequence[str]) -> Floats:
        """Rows x kinds: GPUs of the smallest size a job runs on; 0 where it cannot run."""
        ...

    def most_run(self, table: Table) -> Floats:
        """The most replicas each row has ever run with; 0 before its first run."""
        ...

    def restart_s(self, table: Table) -> Floats:
        """Seconds a restart is believed to cost each row."""
        ...


class Predictor(Protocol):
    """How long jobs will still take, as far as anybody can know."""

    @property
    def label(self) -> str:
        """What results print; says whether it is the truth."""
        ...

    def remaining(self, table: Table, now: float) -> Floats:
        """Estimated seconds left of each row; infinite where nothing is known."""
        ...

    def learn(self, job: Job, ran: float) -> None:
        """A job finished after executing for `ran` seconds."""
        ...
