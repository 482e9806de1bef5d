"""The protocols that parts plug into, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from weft.core.model import Allocation, Job
from weft.core.table import Floats, Table
from weft.core.trace import Trace


class PerfModel(Protocol):
    """How fast jobs run on what they hold, and what a restart costs. Pure."""

    def rate(self, job: Job, on: Allocation, kind: str) -> float:
        """Progress per second; 1 is the speed of the allocation the job asked for."""
        ...

    def restart(self, job: Job) -> float:
        """Seconds lost when the job starts again after having run before."""
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


class TraceLoader(Protocol):
    """Reads one format of workload files."""

    def sniff(self, path: Path) -> bool:
        """Whether the file's content looks like this format."""
        ...

    def load(self, path: Path) -> Trace:
        """All jobs of the file."""
        ...
