"""The scheduler's beliefs about execution plans: which run where, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.learning import Learning
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Config, Job


class PlanChoice(NamedTuple):
    """A plan with its replicas filled in, and samples per second; None is found by the job."""

    plan: Execution | None
    rate: float


class Plans(Learning, Protocol):
    """Plans of jobs that declare several, or whose speed depends on the one they find."""

    def knows(self, job: Job) -> bool:
        """True if anything is known about the plans of a job."""
        ...

    def choices(self, job: Job, config: Config) -> Sequence[PlanChoice]:
        """Plans that run there, the fastest first: memory and the batch allow them."""
        ...

    def observe(self, job: Job, kind: str, report: Report, attempt: AttemptSource) -> None:
        """Learn from a report of a running job."""
        ...

    def fail(self, job: Job, kind: str, on: Allocation) -> None:
        """An attempt died by its own doing."""
        ...

    def forget(self, job: Job) -> None: ...
